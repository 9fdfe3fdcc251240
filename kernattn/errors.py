"""The errors of kernattn: each message names what was given and what is allowed."""

__all__ = [
    "BackendUnavailable",
    "DTypeError",
    "EmptyInputError",
    "FileFormatError",
    "KernattnError",
    "MissingExtra",
    "MixedLibraryError",
    "NoClosedForm",
    "ParameterError",
    "ShapeError",
    "StateMismatchError",
]


class KernattnError(Exception):
    """Base class of every error that kernattn raises on purpose."""


class ShapeError(KernattnError, ValueError):
    """An array has a shape that the operation has no meaning for."""


class EmptyInputError(ShapeError):
    """An axis that must hold something has length 0."""


class ParameterError(KernattnError, ValueError):
    """A parameter lies outside the values that are allowed."""


class DTypeError(KernattnError, TypeError):
    """An argument is an object of another class, or an array of a dtype not allowed; nothing is cast silently."""


class MixedLibraryError(KernattnError, TypeError):
    """Arrays of several libraries, or of several devices, came in one call."""


class StateMismatchError(KernattnError, ValueError):
    """A state was made by another draw of the feature map, or for other shapes."""


class BackendUnavailable(KernattnError, RuntimeError):
    """The backend that was asked for cannot run here, or not on these arrays."""


class MissingExtra(KernattnError, ImportError):
    """A package that only this needs is not installed."""


class NoClosedForm(KernattnError, ValueError):
    """No closed form is known for this quantity of this map."""


class FileFormatError(KernattnError, ValueError):
    """A file is not one that kernattn wrote, or it is damaged."""
