"""Whole graphs refuse what eager calls refuse, and so does each op that is called by its name."""

import re

import pytest

import kernattn as ka

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

from kernattn.torch import FavorAttention, LinearAttention  # noqa: E402
from kernattn.torch._plans import plan_of  # noqa: E402
from kernattn.torch._specs import keep_map, spec_of  # noqa: E402

PHI, ELU = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0), ka.features.elu1()
FAVOR, LINEAR = FavorAttention(ka.kernels.Softmax(), 8, 16), LinearAttention()
LOCAL = ka.patterns.local(2).plan(5)
MASK, IDS = torch.ones(6, dtype=torch.bool), torch.zeros(6, dtype=torch.int64)


def rows(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def qkv(*lead, n=6, l=6, d=4, e=3, q_dtype=torch.float32, dtype=torch.float32):  # noqa: E741
    return rows(*lead, n, d, dtype=q_dtype), rows(*lead, l, d, dtype=dtype), rows(*lead, l, e, dtype=dtype)


STATE = ka.key_state(*qkv(2)[1:], PHI, backend="reference")


def features(x):
    return PHI(x)


def keys(x):
    return PHI.key(x)


def exact(q, k, v):
    return ka.softmax_attention(q, k, v)


def favor(q, k, v):
    return FAVOR(q, k, v)


def linear(q, k, v):
    return LINEAR(q, k, v)


WRONG = {
    "features, other d": (features, rows(2000, 1)),
    "features of keys, other d": (keys, rows(6, 5)),
    "features, integers": (features, rows(6, 4, dtype=torch.int64)),
    "features, no row": (features, rows(4)),
    "features, none": (features, rows(0, 4)),
    "linear, other d": (lambda q, k, v: ka.linear_attention(q, k, v, PHI), *qkv(d=5)),
    "linear, two d": (lambda q, k, v: ka.linear_attention(q, k, v, ELU), rows(6, 5), *qkv()[1:]),
    "linear, other l": (lambda q, k, v: ka.linear_attention(q, k, v, PHI), *qkv()[:2], rows(5, 3)),
    "linear, two dtypes": (lambda q, k, v: ka.linear_attention(q, k, v, PHI), *qkv(q_dtype=torch.float64)),
    "linear, leading axes": (lambda q, k, v: ka.linear_attention(q, k, v, PHI), rows(3, 6, 4), *qkv(2)[1:]),
    "linear, a float mask": (lambda q, k, v: ka.linear_attention(q, k, v, PHI, key_mask=MASK.float()), *qkv()),
    "linear, an integer mask": (lambda q, k, v: ka.linear_attention(q, k, v, PHI, key_mask=IDS), *qkv()),
    "linear, a short mask": (lambda q, k, v: ka.linear_attention(q, k, v, PHI, key_mask=MASK[:5]), *qkv()),
    "linear, a mask of more heads": (
        lambda q, k, v: ka.linear_attention(q, k, v, PHI, key_mask=MASK.expand(3, 6)), *qkv(2),
    ),
    "linear, no such backend": (lambda q, k, v: ka.linear_attention(q, k, v, PHI, backend="x"), *qkv()),
    "linear, no map": (lambda q, k, v: ka.linear_attention(q, k, v, 3), *qkv()),
    "causal, other n": (lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI), *qkv(n=5)),
    "causal, other l": (lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI), *qkv()[:2], rows(5, 3)),
    "causal, float ids": (lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI, segment_ids=IDS.float()), *qkv()),
    "causal, short ids": (lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI, segment_ids=IDS[:5]), *qkv()),
    "causal, a state of other e": (lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI, state=STATE), *qkv(2, e=5)),
    "causal, a state of other heads": (lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI, state=STATE), *qkv(3)),
    "causal, a state of another dtype": (
        lambda q, k, v: ka.causal_linear_attention(q, k, v, PHI, state=STATE),
        *(x.double() for x in qkv(2)),
    ),
    "key_state, other l": (lambda k, v: ka.key_state(k, v, PHI), rows(6, 4), rows(5, 3)),
    "attend, other d": (lambda q: ka.attend(STATE, q, PHI), rows(2, 6, 5)),
    "attend, other heads": (lambda q: ka.attend(STATE, q, PHI), rows(3, 6, 4)),
    "attend, another dtype": (lambda q: ka.attend(STATE, q, PHI), rows(2, 6, 4, dtype=torch.float64)),
    "step, other d": (lambda q, v: ka.linear_attention_step(STATE, q, q, v, PHI), rows(2, 5), rows(2, 3)),
    "step, other e": (lambda q, v: ka.linear_attention_step(STATE, q, q, v, PHI), rows(2, 4), rows(2, 5)),
    "step, other heads": (lambda q, v: ka.linear_attention_step(STATE, q, q, v, PHI), rows(3, 4), rows(3, 3)),
    "step, another out": (
        lambda q, v: ka.linear_attention_step(STATE, q, q, v, PHI, out=rows(2, 7)), rows(2, 4), rows(2, 3),
    ),
    "exact, two d": (exact, rows(6, 5), *qkv()[1:]),
    "exact, other l": (exact, *qkv()[:2], rows(5, 3)),
    "exact, two dtypes": (exact, *qkv(dtype=torch.float16)),
    "exact, integers": (exact, *(x.int() for x in qkv())),
    "exact, a float mask": (lambda q, k, v: ka.softmax_attention(q, k, v, key_mask=MASK.float()), *qkv()),
    "exact, a short bias": (lambda q, k, v: ka.softmax_attention(q, k, v, key_bias=rows(5)), *qkv()),
    "exact, a bias of another dtype": (
        lambda q, k, v: ka.softmax_attention(q, k, v, key_bias=rows(6).double()), *qkv(),
    ),
    "exact, a plan of other l": (lambda q, k, v: ka.softmax_attention(q, k, v, pattern=LOCAL), *qkv()),
    "exact, a scale of nan": (lambda q, k, v: ka.softmax_attention(q, k, v, scale=float("nan")), *qkv()),
    "exact, scales": (lambda q, k, v: ka.softmax_attention(q, k, v, scale=rows(1)), *qkv()),
    "exact, an integer scale": (lambda q, k, v: ka.softmax_attention(q, k, v, scale=IDS[0]), *qkv()),
    "exact, no scale": (lambda q, k, v: ka.softmax_attention(q, k, v, scale="x"), *qkv()),
    "exact, causal or not": (lambda q, k, v: ka.softmax_attention(q, k, v, causal="x"), *qkv()),
    "favor, other d": (favor, *qkv(1, 2)),
    "module, two d": (linear, rows(1, 2, 6, 5), *qkv(1, 2)[1:]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_graph_refuses_what_a_call_refuses(name):
    call, *given = WRONG[name]
    with pytest.raises(ka.errors.KernattnError):
        call(*given)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"must|the map is for|the plan is for"):
        torch.compile(call, backend="eager", fullgraph=True)(*given)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call:UserWarning")
@pytest.mark.parametrize("name", ["features, other d", pytest.param("linear, leading axes", marks=pytest.mark.slow)])
def test_where_a_graph_may_break_the_error_is_that_of_the_call(name):
    call, *given = WRONG[name]
    with pytest.raises(ka.errors.ShapeError) as wanted:
        call(*given)
    torch.compiler.reset()
    with pytest.raises(ka.errors.ShapeError, match=re.escape(str(wanted.value))):
        torch.compile(call, backend="eager")(*given)


def test_an_op_refuses_by_itself():
    """A graph that was made for other sizes, or whoever calls it by its name."""
    keep_map(PHI)
    ops, (name, _, _), none = torch.ops.kernattn, PHI._content, (None,) * 3
    q, k, v = qkv()
    out, _, _, s, z, peak = ops.causal(q, k, v, *none, *none, *none, None, None, name, name, None)
    normaliser = ops.causal(q, k, v, *none, *none, *none, None, None, name, name, None)[1:3]
    kept = out, *normaliser, peak
    pulled = ops.causal_vjp(q, k, v, *none, *none, *none, None, None, name, name, None, *kept, out, None, None, False)
    assert [tuple(x.shape) for x in pulled] == [(6, 4), (6, 4), (6, 3)]
    for op, given in (
        (ops.features, (rows(2000, 1), *none, name, None)),
        (ops.features, (q, rows(8, 3), None, None, name, None)),
        (ops.key_state, (k, v[:5], *none, None, name, None)),
        (ops.attend, (s, z[:7], peak, q, *none, name, None)),
        (ops.step_, (s, z, peak, q[0], k[0], rows(5), *none, *none, None, name, name, None)),
        (ops.block_softmax, (q, k, v[:5], *none, 0.5, "causal", None)),
        (
            ops.causal_vjp,
            (q, k, v, *none, *none, *none, None, None, name, name, None, *kept, out[:5], None, None, False),
        ),
    ):
        with pytest.raises(ka.errors.KernattnError):
            op(*given)


def test_an_argument_that_is_another_than_one_that_passed_is_checked():
    q, k, v, x, out = rows(5, 4, 4)

    def pull(g, gk):
        return torch.ops.kernattn.gated_vjp(
            q, k, v, g, gk, None, None, None, None, None, None, 1.0, False, None, out, None, False
        )

    pull(None, x)
    with pytest.raises(ka.errors.ShapeError, match="g_out must be"):
        pull(x, None)


def test_an_op_that_took_a_gate_refuses_it_as_ids():
    """What it has seen is remembered with its place: a tensor elsewhere is another call."""
    q, k, v = qkv()
    gate, beside, rest = -rows(6), (None,) * 6, (1.0, False, None)
    torch.ops.kernattn.gated(q, k, v, gate, *beside, None, *rest)
    with pytest.raises(ka.errors.DTypeError, match="segment_ids must have dtype int8"):
        torch.ops.kernattn.gated(q, k, v, None, *beside, gate, *rest)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("call", [lambda x: ka.softmax_attention(x, x, x), ka.features.elu1(), ka.kernels.Gaussian()])
def test_torch_jit_trace_is_refused_by_its_name(call):
    with pytest.raises(ka.errors.ParameterError, match=r"torch.jit.trace cannot trace kernattn.*use torch.compile"):
        torch.jit.trace(lambda x: call(x, x) if isinstance(call, ka.kernels.Gaussian) else call(x), torch.ones(5, 4))


@pytest.mark.parametrize(("find", "what"), [(spec_of, "map"), (plan_of, "plan")], ids=["map", "plan"])
def test_a_graph_of_another_process_says_how_its_names_become_known(find, what):
    with pytest.raises(ka.errors.ParameterError, match=f"trace a call with the same {what} here first"):
        find("of nothing that was kept here")
