"""Peers of forward and backward return the output and the gradients that ours are; a backward has its own floor."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from bench import Sizes, race_cases
from bench.cpu.cases import counts
from bench.cpu.device import DEVICE
from kernattn.bench import Rates
from kernattn.ops.causal.cpu import CHUNK
from kernattn.ops.key_state_vjp.walks import SHORT

TINY = Sizes(n=384, heads=2, dim=16, features=32)
RATES = Rates(bytes=1e30, flops=1e11, functions=1e30)
GRADIENTS = [name for name in DEVICE.cases if name.startswith("gradients-")]


@pytest.mark.parametrize("name", GRADIENTS)
def test_peers_return_our_gradients(name: str) -> None:
    """Over spans of whole and of fewer chunks."""
    pytest.importorskip("torch")
    calls = dict(DEVICE.cases[name].make(TINY).calls)
    ours = calls.pop("ours")()
    assert len(calls) == (3 if name in ("gradients-causal-elu1", "gradients-causal-favor") else 1)
    for contestant, call in calls.items():
        call()  # nothing is left of a first call
        if name.endswith("for-softmax"):  # which is another function
            continue
        for what, expected, found in zip("oqkv", ours, call(), strict=True):
            found = np.asarray(found).reshape(expected.shape)
            np.testing.assert_allclose(found, expected, atol=2e-4, rtol=2e-4, err_msg=f"{contestant}, {what}")


def test_a_backward_stands_over_a_floor_of_its_own() -> None:
    rows = {row["contestant"]: row for row in race_cases(DEVICE, ["backward-causal-elu1"], TINY, [64], 1, rates=RATES)}
    forward, backward = rows["ours"], rows["ours, backward"]
    assert rows["ours, forward by vjp"]["flops"] == forward["flops"] < backward["flops"]
    assert backward["ratio"] == pytest.approx(backward["median_ms"] / forward["median_ms"])
    assert backward["over_floor"] == pytest.approx(backward["median_ms"] * RATES.flops / backward["flops"] / 1e3)


def test_counts_of_causal_gradients() -> None:
    """Of a token and head, at d = 64: 22.7 and 47.5 thousand flops (elu + 1), 147, 377 and 473 thousand (m = 256)."""
    o, inside, short = Sizes(n=4096, heads=8), CHUNK + 1, SHORT + 1
    elu1 = 4 * 64 * 64 + inside * 128, 10 * 64 * 64 + 3 * short * 128
    favor = 8 * 256 * 64 + inside * 320, 22 * 256 * 64 + 3 * short * 320
    learnt = 26 * 256 * 64 + 3 * inside * 320
    for flops, work in (
        (elu1[0], counts.linear(o, 64, False, True)),
        (elu1[1], counts.linear_backward(o, 64, False, True)),
        (favor[0], counts.linear(o, 256, True, True)),
        (favor[1], counts.linear_backward(o, 256, True, True)),
        (learnt, counts.linear_backward(o, 256, True, True, learn=True)),
    ):
        assert work.flops == flops * o.tokens
    full = counts.linear(o, 256, True, False), counts.linear_backward(o, 256, True, False)
    assert full[1].flops == 2 * full[0].flops
    exact = counts.softmax(o, True), counts.softmax_backward(o, True)
    assert exact[1].flops == 2.5 * exact[0].flops
