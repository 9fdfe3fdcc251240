"""Attributes that are computed when they are first asked for."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    lazy = cached_property
else:

    class lazy(cached_property):
        """functools.cached_property without a lock.

        Before Python 3.12 that one locks all instances of a class, and a child forked while another thread holds the
        lock waits for it for ever. Here two threads that come at once may both compute a value, which is to be pure;
        all see the one that was stored first.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))


def without_lazy(self: Any) -> dict[str, Any]:
    """Return the attributes of an object but the lazy ones, as `__getstate__`: a copy computes its own again."""
    return {name: value for name, value in vars(self).items() if not isinstance(getattr(type(self), name, None), lazy)}
