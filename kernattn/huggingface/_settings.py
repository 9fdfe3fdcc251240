"""Which features a model has: its config says it, and is saved with the model."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from kernattn._arrays.graphs import in_a_graph
from kernattn._runtime.checks import one_of, positive_integer, shown, whole_number
from kernattn.errors import ParameterError
from kernattn.features import estimators
from kernattn.huggingface._beside import FIXED, LEARNED, MAP, check_name
from kernattn.kernels import Softmax
from kernattn.projections import PROJECTIONS

NOTED = "kernattn"  # the attribute of a config
MOST_DRAWS = 2**63


class Settings(NamedTuple):
    """What draws follow from, besides a layer's index and sizes."""

    num_features: int
    estimator: str
    projection: str
    seed: int
    draws: int
    beside: str = ""  # the name of data or of a map, which a config does not hold

    @property
    def noted(self) -> dict[str, Any]:
        """What a config holds of them."""
        return {name: getattr(self, name) for name in (self._fields if is_drawn(self.estimator) else UNDRAWN)}


DEFAULTS = Settings(256, "positive", "orthogonal", 0, 0)
UNDRAWN = "estimator", "beside"
"""What a config holds of a map without a draw: no seed, which would differ from process to process and say nothing."""

_GO_ON = "set model.config.kernattn = None to go on without"
_TOLD = {"seed": "rng", "beside": "data or phi"}


class Note(dict[str, Any]):
    """Settings that a registration of this process wrote; those of a file are a plain dict."""

    def __init__(self, settings: Settings, by: int, seen: int, loaded: bool) -> None:
        super().__init__(settings.noted)
        self.by, self.seen, self.loaded = by, seen, loaded  # whose it is, and how many redraws that had had

    def __deepcopy__(self, memo: dict[int, Any]) -> Note:
        return Note(_read(self), self.by, self.seen, self.loaded)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a pickled model is one of a file


@in_a_graph
def settle(module: nn.Module, by: int, said: tuple[str, ...], *given: Any) -> Settings:
    """Return the settings of a model, and write them into its config.

    They are those of the registration, unless the model came from a file that has others: then those of the file, and
    as many redraws more as there were since. What the registration was told must be what the file has.
    """
    settings = Settings(*given)
    config = getattr(module, "config", None)
    if config is None:
        return settings
    before = getattr(config, NOTED, None)
    if before is None or (isinstance(before, Note) and not before.loaded):
        setattr(config, NOTED, Note(settings, by, settings.draws, loaded=False))
        return settings
    file = _read(before)
    since = settings.draws - before.seen if isinstance(before, Note) and before.by == by else 0
    drawn = is_drawn(file.estimator)
    other = [name for name in said if getattr(settings, name) != getattr(file, name) and (drawn or name != "seed")]
    if other:
        has = other if drawn else [name for name in other if name in UNDRAWN] or ["estimator"]
        raise ParameterError(
            f"this model was saved with attention by kernattn of {_arguments(file, has)}, and register() was told "
            f"{_arguments(settings, other)}: what the model learnt fits its own. Leave them out of register(), or set "
            "model.config.kernattn = None to train with others"
        )
    now = file._replace(draws=file.draws + since)
    setattr(config, NOTED, Note(now, by, settings.draws, loaded=True))
    return now


def is_drawn(estimator: Any) -> bool:
    """Say whether features of this name have a draw, which follows from a seed."""
    return estimator != MAP and estimator not in tuple(FIXED)


def _arguments(settings: Settings, names: list[str]) -> str:
    return ", ".join(f"{_TOLD.get(name, name)}={getattr(settings, name)!r}" for name in names)


def _read(noted: Any) -> Settings:
    """Return the settings that a config has, or raise."""
    kinds = {name: type(value) for name, value in DEFAULTS._asdict().items()}
    given = noted
    if isinstance(given, dict) and given.keys() <= kinds.keys():
        given = {"beside": "", **given}  # files of before have none
        if not is_drawn(given.get("estimator")):
            given = DEFAULTS._asdict() | {name: given[name] for name in UNDRAWN}  # files of before have a seed, too
    whole = isinstance(given, dict) and given.keys() == kinds.keys()
    if not whole or any(type(given[name]) is not kind for name, kind in kinds.items()):
        raise ParameterError(
            f"the model's config must have {', '.join(kinds)} under {NOTED!r}, as attention by kernattn writes them; "
            f"got {shown(noted)}: {_GO_ON}"
        )
    settings = Settings(**given)
    try:
        _check_values(settings)
    except ParameterError as error:
        raise ParameterError(f"under {NOTED!r} of the model's config {error}; {_GO_ON}") from None
    return settings


def _check_values(settings: Settings) -> None:
    """Raise unless a registration could have written these."""
    estimator = one_of("estimator", settings.estimator, (*estimators(Softmax()), LEARNED, *FIXED, MAP))
    check_name(estimator, settings.beside)
    positive_integer("num_features", settings.num_features)
    one_of("projection", settings.projection, PROJECTIONS)
    whole_number("seed", settings.seed)
    if not 0 <= settings.draws < MOST_DRAWS:
        raise ParameterError(f"draws must be an integer from 0 to 2**63 - 1; got {shown(settings.draws)}")
