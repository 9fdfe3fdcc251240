"""Files written whole: under a temporary name, flushed to the disk, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from time import time
from typing import BinaryIO

STALE = 3600.0  # seconds since a file was last written to
_cleared: set[Path] = set()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path` when the block ends; where it fails, the old file stays.

    Readers see the old file or the new one, never a part. A process that is killed outright leaves what it had written
    beside `path`, as ``.kernattn-*.tmp``: no name could be taken again that another process may still be writing to.
    The first file that a later process writes there removes it, an hour after the kill.
    """
    _clear(path.parent)
    temporary = path.parent / f".kernattn-{token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            with suppress(OSError):  # where nothing locks
                lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _clear(folder: Path) -> None:
    """Remove what killed processes left in a folder, once a process: files that nobody writes to."""
    if folder in _cleared:
        return
    _cleared.add(folder)
    for left in folder.glob(".kernattn-*.tmp"):
        with suppress(OSError):  # another process removes it, or nothing locks
            if time() - left.stat().st_mtime > STALE:
                with left.open("rb") as file:
                    if lock(file.fileno()):
                        left.unlink()


def replace_bytes(path: Path, content: bytes) -> None:
    """Write `content` in place of a file, whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def replace_text(path: Path, content: str) -> None:
    """Write text as `replace_bytes` does."""
    replace_bytes(path, content.encode())


def lock(descriptor: int) -> bool:
    """Keep other processes from an open file or folder until it is closed, or the process dies; False if one has it."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows, where nothing keeps two writers apart
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
