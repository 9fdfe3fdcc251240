"""Peers of forward and backward return the output and the gradients that ours are; a backward has its own floor."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from bench import Sizes, race_cases
from bench.cpu.cases import counts
from bench.cpu.device import DEVICE
from kernattn.attention import key_state
from kernattn.bench import Rates
from kernattn.features import elu1, random_features
from kernattn.kernels import Softmax
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


def _of_chunks(n: int, chunk: int) -> tuple[int, int]:
    """Pairs of a query and a key of its chunk, and tokens before which a chunk has ended, one by one."""
    places = [i % chunk for i in range(n)]
    return sum(place + 1 for place in places), sum(i >= chunk for i in range(n))


@pytest.mark.parametrize("n", [1, 17, 64, 4096])
def test_counts_of_causal_gradients(n: int) -> None:
    """At 4096 tokens 22.5 and 47.3 thousand flops a token (elu + 1), 146, 376 and 471 thousand (m = 256)."""
    o = Sizes(n=n, heads=8)
    (pairs, later), (short, past), (learnt, passed) = (_of_chunks(n, c) for c in (CHUNK, SHORT, CHUNK))
    for flops, work in (
        (2 * 64 * 64 * (n + later) + 2 * 128 * pairs, counts.linear(o, 64, False, True)),
        (10 * 64 * 64 * past + 6 * 128 * short, counts.linear_backward(o, 64, False, True)),
        ((6 * n + 2 * later) * 256 * 64 + 2 * 320 * pairs, counts.linear(o, 256, True, True)),
        ((12 * n + 10 * past) * 256 * 64 + 6 * 320 * short, counts.linear_backward(o, 256, True, True)),
        (
            (16 * n + 10 * passed) * 256 * 64 + 6 * 320 * learnt,
            counts.linear_backward(o, 256, True, True, learn=True),
        ),
    ):
        assert work.flops == pytest.approx(8 * flops, rel=1e-12)
    full = counts.linear(o, 256, True, False), counts.linear_backward(o, 256, True, False)
    assert full[0].flops <= 8 * n * 8 * 256 * 64
    assert n < 4096 or full[1].flops == 2 * full[0].flops
    exact = counts.softmax(o, True), counts.softmax_backward(o, True)
    assert exact[1].flops == 2.5 * exact[0].flops


def test_counts_of_a_step() -> None:
    """A feature of a query or key takes a projection; a number of the state two multiply-adds, read and written."""
    for phi, m, projected in ((elu1(), 16, 0), (random_features(Softmax(), 16, 32, rng=0), 32, 16)):
        state = key_state(*np.zeros((2, 3, 5, 16), np.float32), phi)
        work = counts.step(state, getattr(phi, "omega", None))
        assert work.flops == 3 * m * (4 * (16 + 1) + 2 * 2 * projected)
        assert work.functions == 3 * 2 * m
        assert work.written == 4 * 3 * m * (16 + 1)
        assert work.bytes == 2 * work.written + 4 * m * projected
