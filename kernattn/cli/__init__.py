"""The command line, ``kernattn``: a command a module."""

try:
    from kernattn.cli._main import main
except KeyboardInterrupt:  # before `main` could say so
    raise SystemExit(130) from None

__all__ = ["main"]


def __dir__() -> list[str]:
    return __all__
