"""Leading axes of several arrays together."""

from collections.abc import Mapping

from kernattn.errors import ShapeError

MOST = 32  # axes that every version of NumPy can broadcast


def together(leads: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the broadcast of leading axes, by name; sizes that a graph does not know yet stay what they are."""
    found: list[int] = []
    fits = True
    for lead in leads.values():
        found = [1] * (len(lead) - len(found)) + found
        for at, size in enumerate(lead, len(found) - len(lead)):
            if size != 1:
                fits = fits and found[at] in (1, size)
                found[at] = size
    if not fits or len(found) > MOST:
        raise ShapeError(f"the leading axes must broadcast; got {dict(leads)}")
    return tuple(found)
