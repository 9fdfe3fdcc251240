"""Figures inside a page: SVG without a head of its own, ids that no other figure has, a name for those who listen."""

import re
from html import escape

HEAD = re.compile(r"^.*?(?=<svg )", re.DOTALL)
META = re.compile(r"<(metadata|title|style)\b.*?</\1>\s*", re.DOTALL)
ID = re.compile(r'(\bid="|url\(#|href="#)')
SIZE = re.compile(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', re.DOTALL)
FONT = "'DejaVu Sans', Verdana, sans-serif"  # the second is as wide


def inline(svg: bytes, prefix: str, name: str) -> str:
    """Return the element of a figure that Matplotlib wrote."""
    text = META.sub("", HEAD.sub("", svg.decode()))
    text = ID.sub(lambda match: f"{match[1]}{prefix}-", text).replace("'DejaVu Sans'", FONT)
    box = SIZE.search(text)
    if box is None:
        raise AssertionError("an SVG of Matplotlib has a viewBox")
    opening = f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(name)}">'
    return text[: box.start()] + opening + text[box.end() :].replace("xlink:href", "href")
