"""Parts of SciPy, each loaded when one of its functions is first called: they take longer than all else together."""

from typing import Any

from kernattn._runtime.fork import import_whole


class _Part:
    """A module that is not loaded yet, whose functions are kept once they are asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self._module} is asked for functions alone; got {name}")
        value = getattr(import_whole(self._module), name)
        setattr(self, name, value)
        return value


cluster, linalg, optimize, sparse, special = (
    _Part(f"scipy.{name}") for name in ("cluster.vq", "linalg", "optimize", "sparse", "special")
)
