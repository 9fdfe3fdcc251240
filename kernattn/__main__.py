"""``python -m kernattn`` is the command line."""

from kernattn.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
