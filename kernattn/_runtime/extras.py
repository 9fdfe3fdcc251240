"""Packages that few need: imported where they are used, and missed with the command that installs them."""

from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernattn._runtime.checks import shown
from kernattn._runtime.compiling import terminal, writable
from kernattn.errors import MissingExtra, ParameterError

_BAR = "the progress bar of {}"


def require(module: str, package: str, why: str, extra: str = "study") -> ModuleType:
    """Import `module`; its absence names the package, what needs it and the pip command."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".", maxsplit=1)[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise _missing(package, why, extra) from error


def numpy_dtype(name: str, why: str = "bfloat16") -> np.dtype[Any]:
    """Return a dtype of NumPy by its name; that of bfloat16 is the package ml_dtypes'."""
    return np.dtype(require("ml_dtypes", "ml_dtypes", why, extra="torch").bfloat16 if name == "bfloat16" else name)


def folder(package: str, why: str, extra: str) -> Path:
    """Return where a package of that name lies, whose files are wanted and not its code: nothing is imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package, why, extra)
    return Path(spec.submodule_search_locations[0])


def bar(what: str, progress: bool | None, **how: Any) -> Any:
    """Return a context with a progress bar on stderr, or with None where none is asked for; None asks on a terminal."""
    return require("tqdm", "tqdm", _BAR.format(what)).tqdm(**how) if has_bar(what, progress) else nullcontext()


def has_bar(what: str, progress: bool | None) -> bool:
    """Whether there will be a bar, whose package is missed at once if it is absent."""
    if progress is not None and not isinstance(progress, bool | np.bool_):
        raise ParameterError(f"progress must be True, False or None; got {shown(progress)}")
    wanted = terminal() if progress is None else bool(progress) and writable()
    if wanted:
        require("tqdm", "tqdm", _BAR.format(what))
    return wanted


def _missing(package: str, why: str, extra: str) -> MissingExtra:
    return MissingExtra(f"{package} is not installed and is needed for {why}: pip install 'kernattn[{extra}]'")
