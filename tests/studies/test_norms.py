"""The study of norms: what its quick form finds, and verdicts that records can turn over."""

import os
from pkgutil import resolve_name

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError
from kernattn.ops._numba.codegen.registers import PAIRS, TILES
from kernattn.studies import PRESETS, study
from kernattn.studies._presets import norms

pytest.importorskip("matplotlib")
verdicts = PRESETS["norms"].sentences


def test_what_it_finds(found):
    """Ours on 16 bits has the error of rounding, at every norm; torch's sums in bfloat16 have several times that."""
    records, page, _ = found("norms")
    assert {r["norm"] for r in records} == {1.0, 8.0}
    for r in records:
        if r["way"] in ("float16", "bfloat16", "unit"):
            assert 0.999 < r["over_rounding"] < 1.01
            assert r["error"] < 2.0 ** (-11 if r["way"] == "float16" else -8)
        elif r["way"] == "float32":
            assert r["error"] < 3e-6
        elif r["way"] == "torch" and r["op"] == "favor+" and r["norm"] == 8.0:
            assert r["over_rounding"] > 3
    assert "Holds for kernattn, float16, elu1: the error is that of rounding the exact answer" in page
    if "torch" in {r["way"] for r in records}:
        assert "Does not hold for torch, bfloat16, favor+" in page


@pytest.mark.parametrize("op", ["elu1", "favor+"])
def test_the_loop_of_torch_computes_the_same_attention(op):
    """In float64 nothing is left between the two, so that what the study shows is rounding."""
    torch = pytest.importorskip("torch")
    phi = norms._map(op)
    rows = np.random.default_rng(0).standard_normal((3, 130, norms.DIMS[op]))
    q, k, v = (torch.from_numpy(x) for x in rows)
    out = norms._in_chunks(torch, *norms._features(torch, phi, q, k), v)
    np.testing.assert_allclose(out.numpy(), ka.causal_linear_attention(*rows, phi)[0], rtol=1e-9, atol=1e-12)


def test_the_unit_is_used_for_its_own_way_alone(monkeypatch):
    used = []

    def ours(phi, *rows, backend=None):
        used.append((str(rows[0].dtype), os.environ.get(norms.VARIABLE)))
        return rows[2] + rows[2].dtype.type(0.3)

    monkeypatch.setattr(norms, "_ours", ours)
    for asked, at_hand in (("emulated", True), ("0", PAIRS or TILES)):
        monkeypatch.setenv(norms.VARIABLE, asked)
        design = norms.sweep(quick=True)
        assert ("unit" in design.axes["way"]) == at_hand
        for way in ("unit", "bfloat16", "float32"):
            design.trial({"op": "softmax", "way": way, "norm": 1.0, "n": 8}, np.random.default_rng(0))
        assert os.environ[norms.VARIABLE] == asked
        exact = ("float64", asked)
        on = "emulated" if asked == "emulated" else "1"
        assert used == [exact, ("bfloat16", on), exact, ("bfloat16", "0"), exact, ("float32", "0")]
        used.clear()


class Served(Exception):
    """Raised in place of products by the unit."""


@pytest.mark.parametrize("op", norms.OPS)
def test_the_unit_takes_what_its_ways_are_judged_by(op, monkeypatch):
    """At every length, in as many parts as a way says: else its figures are those of the loops of floats.

    Pairs serve exact attention alone; maps are then those of a machine without them.
    """
    monkeypatch.setattr("kernattn.ops.key_state.matrix.SERVED", True)
    monkeypatch.setenv(norms.VARIABLE, "1" if TILES else "emulated")

    def pack(k, v, sizes, taken):
        raise Served(taken.made)

    def recur_tiles(*given):
        raise Served(given[-5][1])

    monkeypatch.setattr("kernattn.ops.block_softmax.matrix._pack", pack)
    monkeypatch.setattr("kernattn.ops.key_state.matrix.recur_tiles", recur_tiles)
    for quick in (True, False):
        design = norms.sweep(quick=quick)
        (n,) = design.axes["n"]
        for way, parts in (("unit", 2), ("one-part", 1)):
            with pytest.raises(Served) as caught:
                design.trial({"op": op, "way": way, "norm": 1.0, "n": n}, np.random.default_rng(0))
            assert caught.value.args == (parts,)


def test_pairs_are_judged_by_what_they_serve(monkeypatch):
    """Figures of maps beside pairs would be those of the loops of floats, under the name of the unit."""
    monkeypatch.setattr("kernattn.ops.key_state.matrix.SERVED", False)
    monkeypatch.setenv(norms.VARIABLE, "1" if PAIRS or TILES else "emulated")
    design = norms.sweep(quick=True)
    ways = {op: {cell["way"] for cell in design.cells() if cell["op"] == op} for op in norms.OPS}
    assert ways["softmax"] - ways["elu1"] == {"unit", "one-part"}
    assert ways["elu1"] == ways["favor+"]
    with pytest.raises(ParameterError, match=r"serves op=softmax alone; .* got op=elu1, favor\+$"):
        norms.sweep(axes={"op": ["elu1", "favor+"], "way": ["unit"]})
    told = dict.fromkeys(("over_rounding", "over_rounding_low", "over_rounding_high"), 1.0)
    cells = [{**cell, **told} for cell in design.cells()]
    assert "The way unit was left out for elu1 and favor+: pairs serve softmax alone." in verdicts(cells)
    monkeypatch.setattr("kernattn.ops.key_state.matrix.SERVED", True)
    assert len(norms.sweep(quick=True).cells()) == len(cells) + 2 * 2 * 2


def test_verdicts_follow_the_records(found):
    records = [r for r in found("norms")[0] if r["way"] != "float32"]
    for low, high, begins in (
        (0.9, 1.0, "Holds"),
        (1.1, 1.2, "Does not hold"),
        (1.0, 1.1, "Open"),
        (None, None, "Open"),
    ):
        ends = {"over_rounding": 1.0, "over_rounding_low": low, "over_rounding_high": high}
        told = verdicts([r | ends for r in records])
        assert all(each.startswith((begins, "The way")) for each in told), begins
    left_out = verdicts([r for r in records if r["way"] == "bfloat16"])[-5:]
    assert [each.partition(": ")[2] for each in left_out] == [
        "it was not asked for.",
        "it was not asked for.",
        "the matrix unit was missing, or it was not asked for.",
        "the matrix unit was missing, or it was not asked for.",
        "torch was not installed, or it was not asked for.",
    ]


def test_bad_axes(tmp_path, monkeypatch):
    with pytest.raises(ParameterError, match="way must be one of"):
        study("norms", tmp_path / "out", quick=True, axes={"way": ["float8"]})
    monkeypatch.setattr("kernattn.studies._presets.norms.find_spec", lambda name: None)
    assert resolve_name(PRESETS["norms"].sweep)(quick=True).axes["way"] == ("float32", "float16")
    with pytest.raises(ParameterError, match="the way torch takes the package torch"):
        study("norms", tmp_path / "out", quick=True, axes={"way": ["torch"]})
    assert not (tmp_path / "out").exists()
