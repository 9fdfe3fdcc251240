"""Files beside this one: style and script of a report, which are part of the page, and the list of references."""

from functools import cache
from importlib.resources import files


@cache
def read_asset(name: str) -> str:
    """Read a file of this folder."""
    return files("kernattn.studies._report").joinpath(name).read_text(encoding="utf-8")
