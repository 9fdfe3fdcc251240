"""Files of compiled loops: one a signature, each of which says what it was made of."""

import pickle
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.serialize import dumps

from kernattn._runtime.files import replace_bytes

SIZE = sha256().digest_size


class Store:
    """What Numba keeps of one loop, in place of its index of numbered files.

    Two processes that compile one loop for two dtypes at once take the same number, and one of them leaves an index
    that leads to the other's code. Here the name of a file comes from the key, and its first bytes are the hash of the
    stamp, the key and the rest. Whatever else is there, of another version or damaged, is as good as nothing.
    """

    def __init__(self, folder: str, name: str, stamp: object) -> None:
        self._folder, self._name, self._stamp = Path(folder), name, stamp

    def load(self, key: object) -> Any:
        """Return the code kept for a key; None of a new key, and of code that names a module that is not here."""
        with suppress(OSError, ImportError, AttributeError):
            kept = self._path(key).read_bytes()
            if kept[:SIZE] == self._hash(key, kept[SIZE:]):
                return pickle.loads(kept[SIZE:])
        return None

    def save(self, key: object, data: object) -> None:
        """Keep data for a key, unless the disk refuses."""
        content = dumps(data)
        with suppress(OSError):
            replace_bytes(self._path(key), self._hash(key, content) + content)

    def flush(self) -> None:
        """Forget all that was kept."""
        for file in self._folder.glob(f"{self._name}.*.nbc"):
            file.unlink(missing_ok=True)

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._name}.{sha256(repr(key).encode()).hexdigest()[:16]}.nbc"

    def _hash(self, key: object, content: bytes) -> bytes:
        return sha256(repr((self._stamp, key)).encode() + content).digest()
