"""What a model's config cannot hold of its attention: rows of data, and maps that are no draw; it holds their name."""

from __future__ import annotations

from hashlib import sha256
from re import fullmatch
from typing import Any

from kernattn._runtime.checks import instance_of, shown
from kernattn.errors import ParameterError
from kernattn.features import ESTIMATORS, FeatureMap, LearntMap, elu1, random_features, relu
from kernattn.features._data import Data, check_inputs
from kernattn.kernels import Softmax

FIXED = {"elu1": elu1, "relu": relu}
"""Maps of any dimension that have no draw."""

LEARNED = "learned"

SHAPED = "optimal_positive", "favor_sharp", "favor_sharp_asymmetric", LEARNED
"""Estimators whose features follow from data."""

MAP = "map"
"""The estimator of a map that was given."""

_kept: dict[str, Any] = {}


def keep_map(phi: Any) -> str:
    """Keep a map for the models that ask for it, and return its name."""
    instance_of("phi", phi, FeatureMap, "such as kernattn.features.fit or kernattn.load returns")
    if isinstance(phi, LearntMap):
        raise ParameterError("phi must be a map of plain numbers, as it was drawn or fitted; got one of with_numbers")
    return _keep(f"map {phi.fingerprint:x}", phi)


def keep_data(data: Any) -> tuple[str, Data]:
    """Keep rows for the models that ask for them, and return their name, and the rows."""
    rows = check_inputs(data, None)
    content = sha256()
    for side in (rows.queries, rows.keys):
        content.update(f"{side.shape}".encode())
        content.update(side.tobytes())
    return _keep(f"data {content.hexdigest()[:32]}", rows), rows


def _keep(name: str, value: Any) -> str:
    _kept[name] = value
    return name


def check_name(estimator: str, name: str) -> None:
    """Raise unless an estimator has something beside a config by this name."""
    wanted = []
    if estimator == MAP:
        wanted.append(("map [0-9a-f]+", "'map ' and the fingerprint of the map in hexadecimal"))
    elif estimator in SHAPED:
        wanted.append(("data [0-9a-f]{32}", "'data ' and a digest of 32 hexadecimal digits"))
    if estimator not in (MAP, *SHAPED[1:]):  # the first of them does without
        wanted.append(("", "''"))
    if not any(fullmatch(pattern, name) for pattern, _ in wanted):
        allowed = " or ".join(words for _, words in wanted)
        raise ParameterError(f"beside must be {allowed} where estimator is {estimator!r}; got {shown(name)}")


def kept(name: str) -> Any:
    """Return what was kept under a name; None of none."""
    if name == "":
        return None
    if name not in _kept:
        kind, _, number = name.partition(" ")
        wanted = "phi=, the map that it had, as ka.load returns it" if kind == MAP else "data=, the rows that it had"
        raise ParameterError(
            f"this model was saved with attention by kernattn of {kind} {number}, which its config names and does not "
            f"hold: give register() {wanted}; or set model.config.kernattn = None to train with others"
        )
    return _kept[name]


def chosen(rows: Data, num_features: int, projection: str, seed: int) -> str:
    """Return the name of the estimator that "auto" chooses for rows of a head, with scores of the usual scale."""
    dim = rows.queries.shape[1]
    phi = random_features(
        Softmax(scale=dim**-0.5), dim, num_features, projection=projection, data=given(rows), rng=seed
    )
    return next(name for name, row in ESTIMATORS.items() if row.cls is type(phi))


def given(rows: Data) -> Any:
    """Return rows as they were given: one array, or a pair."""
    return rows.rows if rows.queries is rows.keys else (rows.queries, rows.keys)
