"""Mathematics as MathML, made while the site is built: a browser shows it without a script and without a network."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

THIN = '<mspace width="0.17em" />'
BEFORE = re.compile(r"(</m(?:i|n|sub|sup|subsup|frac|sqrt)>)(?=<m[io]>(?:cos|sin|exp|log|max|min)</m[io]>)")
BAR = '<mo stretchy="false">&#x0007C;</mo>'
NAMED = re.compile(r"(<m[io]>[A-Za-z]{2,}</m[io]>)(?=<(?:mi|mn|mfrac|msub|msup|msqrt)\b)")


def mathml(latex: str, display: str) -> str:
    """Convert a formula; bars stand close, and thin spaces part a named function from what is beside it."""
    known = latex.strip().replace("{aligned}", "{split}")  # which the converter has by its other name
    close = convert(known, display=display).replace(BAR, BAR.replace(">", ' lspace="0" rspace="0">', 1))
    return NAMED.sub(rf"\1{THIN}", BEFORE.sub(rf"\1{THIN}", close)).replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    self.body.append(mathml(node.astext(), "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
