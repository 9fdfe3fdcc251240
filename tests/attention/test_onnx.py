"""ONNX's operator LinearAttention, of opset 27: its own cases through an adapter of a few lines."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.attention import GatedState

node = pytest.importorskip("onnx.backend.test.case.node")
from onnx.backend.test.case.node import linear_attention as operator  # noqa: E402 (its cases are made here)
from onnx.helper import get_attribute_value  # noqa: E402

CASES = {case.name: case for case in node._NodeTestCases if len(case.model.graph.node) == 1}


def adapter(
    q, k, v, past=None, decay=None, beta=None, *, q_num_heads, kv_num_heads, scale=0.0, backend=None, **how
):  # fmt: skip
    """Take what the operator takes; heads are (kv_num_heads, queries of each) before tokens."""

    def heads(x, *own):
        return np.moveaxis(x.reshape(*x.shape[:2], *own, x.shape[2] // np.prod(own)), 1, -2)

    options = {"scale": scale or None, "backend": backend}
    if how.get("update_rule", b"gated_delta") in (b"gated", b"gated_delta"):
        logs = heads(decay, kv_num_heads, 1)
        options |= {"g": logs[..., 0]} if logs.shape[-1] == 1 else {"gk": logs}
    if how.get("update_rule", b"gated_delta") in (b"delta", b"gated_delta"):
        options["beta"] = heads(beta, beta.shape[2], 1)[..., 0]
    if past is not None:
        options["state"] = GatedState(past[:, :, None].astype("f4"))
    q, k, v = heads(q, kv_num_heads, q_num_heads // kv_num_heads), heads(k, kv_num_heads, 1), heads(v, kv_num_heads, 1)
    out, after = ka.gated_linear_attention(q, k, v, **options)
    return np.moveaxis(out, -2, 1).reshape(*out.shape[:1], out.shape[-2], -1), after.s[:, :, 0]


def test_all_rules_are_among_the_cases():
    rules = {get_attribute_value(x) for case in CASES.values() for x in case.model.graph.node[0].attribute}
    assert len(CASES) >= 14
    assert {b"linear", b"gated", b"delta"} <= {x for x in rules if isinstance(x, bytes)}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_cases_of_the_operator(name, backend):
    case = CASES[name]
    (call,) = case.model.graph.node
    attributes = {x.name: get_attribute_value(x) for x in call.attribute}
    for given, wanted in case.data_sets:
        given = iter(given)
        arrays = [next(given) if own else None for own in call.input]
        for got, right in zip(adapter(*arrays, **attributes, backend=backend), wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=case.rtol, atol=max(case.atol, 1e-7))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_many_tokens(backend):
    """Several chunks, two queries a key, against the operator's reference, token by token."""
    rng = np.random.default_rng(0)
    q, k, v, past = (rng.standard_normal(own, "f4") for own in ((2, 90, 32), (2, 90, 16), (2, 90, 12), (2, 2, 8, 6)))
    k, beta = operator._l2_normalize(k, 2), rng.uniform(0, 1, (2, 90, 2)).astype("f4")
    for width in (1, 8):
        arrays = q, k, v, past, -rng.standard_exponential((2, 90, 2 * width), "f4"), beta
        wanted = operator._compute(*arrays, q_num_heads=4, kv_num_heads=2)
        for got, right in zip(adapter(*arrays, q_num_heads=4, kv_num_heads=2, backend=backend), wanted, strict=True):
            np.testing.assert_allclose(got, right, atol=2e-6 * np.max(np.abs(right)), rtol=0)
