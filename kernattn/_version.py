"""The version of the package, stated once."""

__all__ = ["__version__"]

__version__ = "0.2.0"
