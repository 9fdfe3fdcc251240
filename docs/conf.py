"""Sphinx configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# BLAS threads that wait awake slow our loops, and what compiles is no output of an example
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", KERNATTN_QUIET="1")

import kernattn

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "kernattn"
author = "kernattn developers"
copyright = "2026, kernattn developers"
version = release = kernattn.__version__

extensions = [
    "api_links",
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/README.rst"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
suppress_warnings = ["ref.ref"]  # docstrings that are inherited from scikit-learn refer to labels of its pages
templates_path = ["_templates"]
autodoc_typehints = "none"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

toc_object_entries_show_parents = "hide"  # `bias()` beside the page of a class, which is too wide with its name

html_theme = "pydata_sphinx_theme"
html_title = "kernattn"
html_static_path = ["_static"]
html_css_files = ["kernattn.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_sidebars = {"adding": [], "benchmarks/*": [], "changelog": [], "index": [], "references": [], "studies": []}
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"/(?!plot_)\w+\.py$|regret_data\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,  # its page loads scripts from elsewhere
    "plot_gallery": True,
    "doc_module": ("kernattn",),
    "backreferences_dir": "generated/examples",
}
