"""Leading axes of several arrays together, and strips of their rows."""

from collections.abc import Iterator

from kernattn.errors import ShapeError

MOST = 32  # axes that every version of NumPy can broadcast
STRIP = 8192  # rows that are looked at together, or whose products are summed before they are added in float64


def broadcast(**leads: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast of leading axes, by name; sizes that a graph does not know yet stay what they are."""
    shape: list[int] = []
    fits = True
    for lead in leads.values():
        shape = [1] * (len(lead) - len(shape)) + shape
        for at, size in enumerate(lead, len(shape) - len(lead)):
            if size != 1:
                fits = fits and shape[at] in (1, size)
                shape[at] = size
    if not fits or len(shape) > MOST:
        raise ShapeError(f"the leading axes must broadcast; got {leads}")
    return tuple(shape)


def strips(n: int, size: int | None = None) -> Iterator[slice]:
    """Return slices of n rows, each of `size` rows at most."""
    size = STRIP if size is None else max(1, size)
    return (slice(first, min(first + size, n)) for first in range(0, n, size))
