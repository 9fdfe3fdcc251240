"""A transfer from beginning to end: a model is recorded once, and its layers are fitted one by one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kernattn._runtime.checks import boolean, checked_folder, one_of, positive_integer, whole_number
from kernattn._runtime.extras import bar, has_bar
from kernattn._runtime.files import replace_text
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.transfer._fit import Settings, fit_layer
from kernattn.transfer._result import (
    LISTED,
    Layer,
    Transfer,
    layer_files,
    load,
    read_json,
    read_layer,
    write_layer,
    write_list,
)
from kernattn.transfer._rows import Recorder

SETTINGS = "settings.json"
KINDS = "hedgehog", "exponential"

Record = Callable[[Recorder], object]


def settings_of(
    num_features: Any,
    kind: Any,
    window: Any,
    shared: Any,
    output_scale: Any,
    sequences: Any,
    length: Any,
    rng: Any,
) -> Settings:
    """Return the arguments that all doors take, checked."""
    sequences = positive_integer("sequences", sequences)
    if sequences < 2:
        raise ParameterError("sequences must be 2 at least, one of which judges; got 1")
    return Settings(
        num_features=positive_integer("num_features", num_features),
        kind=one_of("kind", kind, KINDS),
        window=whole_number("window", window),
        shared=boolean("shared", shared),
        output_scale=boolean("output_scale", output_scale),
        sequences=sequences,
        length=positive_integer("length", length),
        rng=_number_of(rng),
    )


def _number_of(rng: RNG) -> int | None:
    """Return the number from which a run's random ones follow; None where any will do."""
    checked = generator(rng)
    return None if rng is None else int(rng) if isinstance(rng, Integral) else int(checked.integers(2**63))


def _any_number(place: Path | None) -> int:
    """Return the number of the run that a folder holds, or a new one."""
    if place is not None and (place / SETTINGS).exists():
        kept = read_json(place / SETTINGS).get("rng")
        if isinstance(kept, int) and kept >= 0:
            return kept
    return int(np.random.default_rng().integers(2**63))


def run(
    record: Record, asked: Settings, digest: str, folder: str | PathLike[str] | None, progress: bool | None
) -> Transfer:
    """Return a transfer: `record` runs the model, whose numbers `digest` tells, with a recorder.

    Where there is a folder, each layer is written to it when it is fitted, and none that is there is fitted again.
    """
    has_bar("a transfer", progress)
    place = None if folder is None else checked_folder("folder", folder)
    if asked.rng is None:
        asked = replace(asked, rng=_any_number(place))
    assert asked.rng is not None
    if place is not None:
        _begin(place, asked, digest)
    if place is not None and (place / LISTED).is_file():
        return load(place)
    files = {} if place is None else layer_files(place)
    done = {index: read_layer(path) for index, path in files.items()}
    by_name = {layer.name: layer for layer in done.values()}
    recorder = Recorder(asked.sequences, asked.length, asked.rng, set(by_name))
    record(recorder)
    if not recorder.places:
        raise ParameterError("batches must hold one batch at least; got none")
    names = list(recorder.places)
    if any(index >= len(names) or names[index] != layer.name for index, layer in done.items()):
        raise ParameterError(f"folder must hold a transfer of this model; {place} has layers {[*by_name]}")
    total = sum(1 if asked.shared else len(rows[0].k) for rows in recorder.kept.values() if rows)
    layers: list[Layer] = []
    with bar("a transfer", progress, total=total, desc="transfer", unit="map") as shown_bar:

        def tell() -> None:
            if shown_bar is not None:
                shown_bar.update()

        for index, name in enumerate(names):
            layer = by_name.get(name)
            if layer is None:
                layer = fit_layer(name, index, recorder.kept.pop(name), recorder.places[name], asked, tell)
                if place is not None:
                    write_layer(place, index, layer)
            layers.append(layer)
            if shown_bar is not None:
                shown_bar.set_postfix_str(f"{name}: error {layer.error:.3f}", refresh=False)
    made = Transfer(tuple(layers))
    _warn_of_random(made)
    if place is not None:
        write_list(place, made)
    return made


def _begin(place: Path, asked: Settings, digest: str) -> None:
    """Make sure that the folder holds the settings of this transfer and no other."""
    place.mkdir(parents=True, exist_ok=True)
    settings = asdict(asked) | {"model": digest}
    if (place / SETTINGS).exists():
        before = read_json(place / SETTINGS)
        if before != settings:
            other = [name for name in settings if before.get(name) != settings[name]]
            raise ParameterError(
                f"folder must hold this transfer or none; {place} has one with another {', '.join(other)}: "
                + ", ".join(f"{name}={before.get(name)!r}" for name in other)
            )
    elif any(place.glob("layer-*.npz")):
        raise ParameterError(f"folder must hold this transfer or none; {place} has layers and no {SETTINGS}")
    else:
        replace_text(place / SETTINGS, json.dumps(settings, indent=1))


def _warn_of_random(made: Transfer) -> None:
    """Warn of heads that have a random map."""
    at_random = {layer.name: layer.random_heads for layer in made.layers if layer.random_heads}
    if at_random:
        listing = "; ".join(f"{name}: {', '.join(map(str, heads))}" for name, heads in at_random.items())
        warnings.warn(f"a fit was no better than a random map, which these have: {listing}", stacklevel=4)
