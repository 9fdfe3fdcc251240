"""What a benchmark cannot heed is refused by name before any race."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

from bench import Sizes, race_cases
from bench.cpu.device import DEVICE
from kernattn.cli import main
from kernattn.errors import ParameterError

TINY = Sizes(n=128, heads=2, dim=16, features=32)


def test_unknown_cases_and_sizes_are_named() -> None:
    with pytest.raises(ParameterError, match="no-such-case"):
        race_cases(DEVICE, ["no-such-case"], TINY)
    with pytest.raises(ParameterError, match="heads"):
        race_cases(DEVICE, ["step"], Sizes(heads=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rounds", "0"], "rounds must be a positive integer"),
        (["generate", "--rounds", "-1"], "rounds must be a positive integer"),
        (["--start", "--stream", "--rows", "0"], "rows must be a positive integer"),
        (["--cases", "gram", "causal-elu1", "--n", "64"], "--n is not of cases whose n is fixed (gram, 20000)"),
        (["--start", "--n", "64"], "nothing that was asked for takes it"),
        (["generate", "--cases", "step"], "generate races no cases"),
        (["--cases", "step", "--anew"], "options of `kernattn bench tables`"),
        (["tables", "--n", "64"], "--rows N"),
        (["tables", "--heads", "2", "--rounds", "1"], "nothing that was asked for takes --heads, --rounds;"),
        (["exact", "--features", "64"], "nothing that was asked for takes --features;"),
        (["generate", "--dim", "8", "--dtype", "float64"], "takes --dtype;"),
        (["--scaling", "--dtype", "float64"], "takes --dtype;"),
        (["--start", "--stream", "--heads", "8", "--dim", "8"], "takes --heads;"),
        (["--cases", "step", "--seeds", "3"], "takes --seeds;"),
        (["--cases", "kernel-gaussian", "causal-hadamard", "--heads", "8", "--dim", "8"], "takes --heads;"),
        (["--cases", "causal-hadamard", "--scaling", "--n", "64", "--batch", "1", "--heads", "8"], "takes --batch;"),
        (["--cases", "product-64-64-64", "--features", "8", "--dtype", "float64"], "takes --features;"),
    ],
)
def test_what_cannot_be_heeded_is_refused_before_any_race(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for race in ("kernattn.cli._start.time_starts", "bench.races._rows", "bench.cpu.tabular.command.race"):
        monkeypatch.setattr(race, lambda *_, **__: pytest.fail("raced"))
    assert main(["bench", *options]) == 2
    assert message in capsys.readouterr().err
