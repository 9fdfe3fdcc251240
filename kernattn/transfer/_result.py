"""What a transfer leaves: the attention of each layer, its errors, and files of both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np

from kernattn._maps.record import fingerprint, read, save, type_name
from kernattn._runtime.archive import reading
from kernattn._runtime.checks import checked_folder, checked_path, shown
from kernattn._runtime.files import replace_text
from kernattn._runtime.lazy import lazy, without_lazy
from kernattn.errors import FileFormatError, ParameterError
from kernattn.features import Fitted
from kernattn.features._files import known_types
from kernattn.transfer._heads import Heads

FORMAT = "kernattn transfer 1"
LISTED = "transfer.json"
MOST = 100_000  # layers of a folder


@final
@dataclass(frozen=True, eq=False, repr=False)
class Layer:
    """The attention of a layer, and what it is worth on sequences to which it was not fitted.

    Attributes
    ----------
    name : str
        The layer's name in its model.
    heads : Heads
        Its attention.
    errors : tuple of float
        Error of outputs, over that of attending to all keys alike, root mean square, for each head of keys.
    random_errors : tuple of float
        The same of FAVOR+ with as many features, one draw.
    seen : int
        Sequences of the fit.
    held : int
        Sequences of the errors.
    """

    name: str
    heads: Heads
    errors: tuple[float, ...]
    random_errors: tuple[float, ...]
    seen: int
    held: int

    def __post_init__(self) -> None:
        counts, wanted = {len(self.errors), len(self.random_errors)}, self.heads.count
        if len(counts) > 1 or 0 in counts or (wanted is not None and counts != {wanted}):
            raise ParameterError(
                f"errors and random_errors must have a number for each of {wanted or 'one or more'} heads; got "
                f"{len(self.errors)} and {len(self.random_errors)}"
            )

    def __repr__(self) -> str:
        return f"Layer({self.name!r}, {self.heads!r}, error={self.error:.3g})"

    @property
    def error(self) -> float:
        """The root mean square of the heads' errors."""
        return float(np.sqrt(np.mean(np.square(self.errors))))

    @property
    def random_error(self) -> float:
        """The same of FAVOR+."""
        return float(np.sqrt(np.mean(np.square(self.random_errors))))

    @property
    def random_heads(self) -> tuple[int, ...]:
        """Heads whose fit was no better than a random map, which they have."""
        return tuple(at for at, phi in enumerate(self.heads.maps) if not isinstance(phi, Fitted))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Transfer:
    """The attention of all layers of a model, fitted to its softmax attention.

    ``print`` shows the errors. `ka.transformer.forward` and its kin take it as ``attention=``.

    Attributes
    ----------
    layers : tuple of Layer
        The layers, in the order in which the model called them.
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        if not names or len({*names}) < len(names):
            raise ParameterError(f"layers must be one or more, each of a name of its own; got {names}")

    __getstate__ = without_lazy

    def __getitem__(self, name: str) -> Layer:
        """Return the layer of a name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"{shown(name)} is none of the layers {', '.join(layer.name for layer in self.layers)}")

    def __str__(self) -> str:
        width = max(len("layer"), *(len(layer.name) for layer in self.layers))
        lines = [f"{'layer':{width}}  error  FAVOR+  worst head  random maps"]
        lines += [
            f"{x.name:{width}}  {x.error:5.3f}  {x.random_error:6.3f}  {max(x.errors):10.3f}  {len(x.random_heads):11}"
            for x in self.layers
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        errors = [round(layer.error, 3) for layer in self.layers]
        return f"Transfer({len(errors)} layer{'s' * (len(errors) > 1)}, errors {errors})"

    @lazy
    def fingerprint(self) -> int:
        """A number that tells transfers apart, which a model keeps beside its weights."""
        names = tuple(layer.name for layer in self.layers)
        parts = tuple((h.fingerprint, h.window, *h.near_bias, *h.scale) for h in (layer.heads for layer in self.layers))
        return fingerprint((names, parts))

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a file for each layer and a list of them; `load` reads the folder.

        Parameters
        ----------
        folder : str or PathLike
            The folder, which is made where there is none.

        Raises
        ------
        ParameterError
            If there is a transfer in it already, or a map cannot be saved.
        """
        place = checked_folder("folder", folder)
        place.mkdir(parents=True, exist_ok=True)
        if (place / LISTED).exists():
            raise ParameterError(f"folder must hold no transfer yet; {place} has {LISTED}")
        for index, layer in enumerate(self.layers):
            write_layer(place, index, layer)
        write_list(place, self)


def load(folder: str | PathLike[str]) -> Transfer:
    """Return the transfer that a folder holds, of `Transfer.save` or of a run that had it as its folder.

    Parameters
    ----------
    folder : str or PathLike
        The folder; nothing in it is executed.

    Returns
    -------
    Transfer
        The layers: the same maps, bit by bit, and the same states.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no transfer in it that is complete.
    FileFormatError
        If a file is damaged, or not of this transfer.

    Examples
    --------
    >>> import tempfile
    >>> import kernattn as ka
    >>> phi = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
    >>> layer = ka.transfer.Layer("layers.0", ka.transfer.Heads(phi), (0.1,), (0.2,), 12, 4)
    >>> made = ka.transfer.Transfer((layer,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made.save(folder)
    ...     ka.transfer.load(folder).fingerprint == made.fingerprint
    True
    """
    place = checked_path("folder", folder)
    if not (place / LISTED).is_file():
        begun = len(layer_files(place)) if place.is_dir() else 0
        why = f"it has {begun} layers of one that is not complete: go on with it" if begun else "there is none"
        raise FileNotFoundError(f"{place} holds no transfer: {why}")
    listed = read_json(place / LISTED)
    if set(listed) != {"format", "layers", "fingerprint"} or listed["format"] != FORMAT:
        raise FileFormatError(f"{place / LISTED} is not of the format {FORMAT!r}")
    digests = listed["layers"]
    if not isinstance(digests, list) or not 1 <= len(digests) <= MOST:
        raise FileFormatError(f"{place / LISTED} must have a list of the digest of each layer's file")
    for index, digest in enumerate(digests):
        if digest_of(path := layer_file(place, index)) != digest:
            raise FileFormatError(
                f"{path} is not the file that {LISTED} lists, whose digest is another: it is damaged, or {place} holds "
                "layers of several transfers"
            )
    layers = tuple(read_layer(layer_file(place, index)) for index in range(len(digests)))
    try:
        made = Transfer(layers)
    except ParameterError as error:
        raise FileFormatError(f"{place} holds layers of several transfers: {error}") from error
    if made.fingerprint != listed["fingerprint"]:
        raise FileFormatError(f"{place} holds layers of several transfers")
    return made


def layer_file(folder: Path, index: int) -> Path:
    """Return the file of a layer."""
    return folder / f"layer-{index:04}.npz"


def layer_files(folder: Path) -> dict[int, Path]:
    """Return the files of layers that were fitted, by their numbers."""
    named = ((path.stem.removeprefix("layer-"), path) for path in folder.glob("layer-*.npz"))
    return {int(number): path for number, path in sorted(named) if number.isdecimal()}


def write_layer(folder: Path, index: int, layer: Layer) -> None:
    """Write the file of a layer, whole or not at all."""
    save(layer, layer_file(folder, index))


def write_list(folder: Path, made: Transfer) -> None:
    """Write the list, which says that the transfer is complete."""
    digests = [digest_of(layer_file(folder, index)) for index in range(len(made.layers))]
    contents = {"format": FORMAT, "layers": digests, "fingerprint": made.fingerprint}
    replace_text(folder / LISTED, json.dumps(contents, indent=1))


def digest_of(path: Path) -> str:
    """Return the digest of a file's bytes."""
    with reading(path, "a layer of a transfer"):
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def read_layer(path: Path) -> Layer:
    """Return the layer of a file."""
    value = read(path, known_types() | {type_name(cls): cls for cls in (Heads, Layer)})
    if not isinstance(value, Layer):
        raise FileFormatError(f"{path} holds a {type(value).__name__}, not a layer of a transfer")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Return an object of JSON."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # brackets may lie deeper than Python follows
        raise FileFormatError(f"{path} is damaged: {error}") from error
    if not isinstance(contents, dict):
        raise FileFormatError(f"{path} must hold an object; got {type(contents).__name__}")
    return contents
