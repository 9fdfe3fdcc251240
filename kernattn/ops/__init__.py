"""The loops that array expressions do badly: one folder per op, its implementations side by side."""

from importlib import import_module
from pkgutil import iter_modules

from kernattn.ops.dispatch import Op

__all__ = ["OPS"]

OPS: dict[str, Op] = {
    folder.name: import_module(f"{__name__}.{folder.name}").OP
    for folder in iter_modules(__path__)
    if folder.ispkg and not folder.name.startswith("_")
}
"""By name: every folder of this room whose name does not begin with a line is an op."""
