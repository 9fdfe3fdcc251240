"""The device that a call's CuPy arrays are on, entered for as long as the call runs."""

from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any

from kernattn.errors import MixedLibraryError


@cache
def on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of CuPy arrays, one or tuples of them, that allocates and launches on their device."""
    import cupy

    def devices(values: Iterable[Any]) -> set[int]:
        ids: set[int] = set()
        for x in values:
            if isinstance(x, cupy.ndarray):
                ids.add(x.data.device_id)
            elif isinstance(x, tuple):
                ids |= devices(x)
        return ids

    @wraps(function)
    def there(*arguments: Any, **keywords: Any) -> Any:
        ids = devices((*arguments, *keywords.values()))
        if len(ids) > 1:
            raise MixedLibraryError(
                f"all arrays of one call must be on one device; got CUDA devices {', '.join(map(str, sorted(ids)))}"
            )
        with cupy.cuda.Device(*ids):
            return function(*arguments, **keywords)

    return there
