"""Names of the library in a text, as `ka.solvers.ridge`, lead to their pages; the pages stay plain Markdown."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"([\w.]+)(\(.*\))?")
LONG = {"ka": "kernattn", "metrics": "kernattn.metrics", "phi": "kernattn.features.FeatureMap"}


def candidates(text: str) -> list[str]:
    """Names that a literal may stand for: with its first part in full, or as an everyday name."""
    match = NAME.fullmatch(text)
    if match is None:
        return []
    first, dot, rest = match.group(1).partition(".")
    full = LONG.get(first, first) + dot + rest
    return [full.replace("kernattn.patterns", "kernattn.attention.patterns"), f"kernattn.{text.partition('(')[0]}"]


class Links(SphinxPostTransform):
    """Wrap literals that name a documented object in a reference to it."""

    default_priority = 400

    def run(self, **kwargs: Any) -> None:
        """Link the literals of one page."""
        objects = self.env.domains.python_domain.objects
        for literal in list(self.document.findall(nodes.literal)):
            found = next((objects[name] for name in candidates(literal.astext()) if name in objects), None)
            if found is not None and isinstance(literal.parent, nodes.paragraph | nodes.entry):
                text = literal.deepcopy()
                here = self.env.docname
                literal.replace_self(make_refnode(self.app.builder, here, found.docname, found.node_id, text))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(Links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
