"""Sphinx configuration."""

from __future__ import annotations

import kernattn

project = "kernattn"
author = "kernattn developers"
copyright = "2026, kernattn developers"
version = release = kernattn.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/README.rst"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
suppress_warnings = ["ref.ref"]  # docstrings that are inherited from scikit-learn refer to labels of its pages
templates_path = ["_templates"]
autodoc_typehints = "none"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "kernattn"
html_show_sourcelink = False
html_sidebars = {"changelog": [], "adding": []}
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "plot_gallery": True,
}
