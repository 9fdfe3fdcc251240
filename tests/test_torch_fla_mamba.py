"""Mamba-2's scan and short convolutions by the names of their packages, against loops over tokens in float64."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import silu, softplus

from kernattn.errors import ParameterError, ShapeError
from kernattn.torch.fla import (
    causal_conv1d_fn,
    causal_conv1d_update,
    mamba_chunk_scan_combined,
    selective_state_update,
)
from processes import assert_fine

B, T, H, P, N = 2, 21, 4, 5, 7


def recur(x, dt, A, B, C, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None, limit=None):
    """S <- e^{dt A} S + dt x B^T, y = S C + D x, times silu(z); states of zeros where a sequence begins."""
    x, dt, A, B, C = (y.double() for y in (x, dt, A, B, C))
    B, C = (y.repeat_interleave(x.shape[2] // y.shape[2], dim=2) for y in (B, C))
    dt = softplus(dt + (0 if dt_bias is None else dt_bias.double()))
    if limit is not None:
        dt = dt.clamp(*limit)
    s = torch.zeros(*x.shape[:1], *x.shape[2:], B.shape[3]) if initial_states is None else initial_states
    s, out = s.double(), []
    for t in range(x.shape[1]):
        if seq_idx is not None and t:
            s = torch.where((seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None], s, 0)
        s = (dt[:, t] * A).exp()[..., None, None] * s + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        out.append((s * C[:, t, :, None]).sum(-1))
    y = torch.stack(out, 1)
    y = y if D is None else y + D.double().reshape(x.shape[2], -1) * x
    return (y if z is None else y * silu(z.double())), s


def inputs(groups, dtype=torch.float32, seed=0):
    rng = torch.Generator().manual_seed(seed)
    shapes = {"x": (B, T, H, P), "dt": (B, T, H), "A": (H,), "B": (B, T, groups, N), "C": (B, T, groups, N)}
    shapes |= {"D": (H,), "z": (B, T, H, P), "dt_bias": (H,), "initial_states": (B, H, P, N)}
    made = {name: torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for name, shape in shapes.items()}
    return made | {"A": -made["A"].exp()}


def near(found, wanted, tolerance):
    assert float((found - wanted).detach().abs().max()) <= tolerance * float(wanted.detach().abs().max())


@pytest.mark.parametrize(
    ("groups", "names", "dtype", "tolerance"),
    [
        (1, (), torch.float32, 1e-6),
        (2, ("D", "dt_bias", "initial_states"), torch.float32, 1e-6),
        (4, ("D", "z", "dt_bias"), torch.float64, 1e-12),
        (2, ("D", "initial_states", "seq_idx"), torch.float64, 1e-12),
        (2, ("dt_bias", "initial_states", "limit"), torch.float64, 1e-12),
        (1, ("D", "z"), torch.bfloat16, 1e-2),
    ],
)
def test_scans_and_their_gradients_are_those_of_tokens_one_by_one(groups, names, dtype, tolerance):
    made = inputs(groups, dtype)
    given = {name: made[name].requires_grad_() for name in ("x", "dt", "A", "B", "C", *names) if name in made}
    others = {"seq_idx": torch.tensor([[0] * 9 + [1] * 3 + [0] * 9, [5] * 20 + [6]])} if "seq_idx" in names else {}
    limit = (0.2, 1.5) if "limit" in names else None
    wanted, last = recur(**given, **others, limit=limit)
    weights = torch.linspace(-1, 1, wanted.numel()).reshape(wanted.shape)
    slopes = torch.autograd.grad((wanted * weights).sum() + last.sum(), given.values())
    options = {} if limit is None else {"dt_limit": limit}
    out, states = mamba_chunk_scan_combined(**given, **others, **options, dt_softplus=True, return_final_states=True)
    assert out.dtype == dtype
    assert states.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    near(out, wanted, tolerance)
    near(states, last, tolerance)
    found = torch.autograd.grad((out * weights).sum() + states.sum(), given.values())
    for own, slope in zip(found, slopes, strict=True):
        near(own, slope, 10 * tolerance)


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize(
    ("groups", "dtype", "tolerance"), [(1, torch.float32, 1e-6), (2, torch.float64, 1e-12), (4, torch.bfloat16, 2e-2)]
)
def test_steps_go_on_where_a_scan_ends(expanded, groups, dtype, tolerance):
    made = inputs(groups, dtype)
    wanted, last = recur(**made)
    first = {name: x[:, :15] if x.ndim > 2 and x.shape[1] == T else x for name, x in made.items()}
    _, state = mamba_chunk_scan_combined(**first, dt_softplus=True, return_final_states=True)
    kept = state
    A, D, bias = (made[name] for name in ("A", "D", "dt_bias"))
    if expanded:  # as transformers calls it
        A, D, bias = A[:, None, None].expand(H, P, N), D[:, None].expand(H, P), bias[:, None].expand(H, P)
    for t in range(15, T):
        x, dt, b, c, z = (made[name][:, t] for name in ("x", "dt", "B", "C", "z"))
        dt = dt[..., None].expand(-1, -1, P) if expanded else dt
        out = selective_state_update(state, x, dt, A, b, c, D, z=z, dt_bias=bias, dt_softplus=True)
        assert out.dtype == dtype
        near(out, wanted[:, t], tolerance)
    assert state is kept
    near(state, last, tolerance)


@pytest.mark.parametrize("more", [None, [0, 0, 1, 1, 2, 2, 2, 3, 3]])
@pytest.mark.parametrize(("bounds", "first"), [([0, 4, 4, 9], 0), ([0, 0, 2, 9], 1)])
def test_packed_sequences_have_states_of_their_own(bounds, first, more):
    made = {name: y[:1, :9] if y.ndim > 2 and y.shape[1] == T else y for name, y in inputs(2, torch.float64).items()}
    given = made | {"initial_states": made["initial_states"][:1]}
    leaves = [given[name].requires_grad_() for name in ("x", "dt", "A", "B", "initial_states")]
    ids = torch.bucketize(torch.arange(9), torch.tensor(bounds[1:]), right=True)
    runs = ids if more is None else 10 * ids + torch.tensor(more)
    options = {"seq_idx": None if more is None else torch.tensor([more]), "cu_seqlens": torch.tensor(bounds)}
    options |= {"dt_softplus": True, "return_final_states": True}
    out, last, states = mamba_chunk_scan_combined(**given, **options, return_varlen_states=True)
    wanted, end = recur(**given, seq_idx=runs[None])
    ends = []
    for at, (start, stop) in enumerate(pairwise(bounds)):
        part = {name: y[:, start:stop] if y.ndim > 2 and y.shape[1] == 9 else y for name, y in given.items()}
        part |= {"initial_states": part["initial_states"] * (at == first), "seq_idx": runs[None, start:stop]}
        ends.append(recur(**part)[1] if stop > start else 0 * end)
    ends = torch.cat(ends)
    for found, exact in ((out, wanted), (last, end), (states, ends)):
        near(found, exact, 1e-12)
    slopes = torch.autograd.grad(wanted.sin().sum() + ends.sum(), leaves)
    for own, slope in zip(torch.autograd.grad(out.sin().sum() + states.sum(), leaves), slopes, strict=True):
        near(own, slope, 1e-12)
    for own, other in zip((out, last), mamba_chunk_scan_combined(**given, **options), strict=True):
        near(own, other, 1e-12)


def test_a_step_has_gradients():
    made = inputs(2, torch.float64)
    state = made["initial_states"].requires_grad_()
    x, dt, b, c = (made[name][:, 0].requires_grad_() for name in ("x", "dt", "B", "C"))
    rates, skip = made["A"].requires_grad_(), made["D"].requires_grad_()

    def step(state, x, dt, A, B, C, D):
        after = state.clone()
        return selective_state_update(after, x, dt, A, B, C, D, dt_softplus=True), after

    assert torch.autograd.gradcheck(step, (state, x, dt, rates, b, c, skip))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_convolutions_and_their_gradients(dtype, activation):
    rng = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(shape, generator=rng).to(dtype) for shape in [(2, 11, 9), (9, 4), (9,)])
    leaves = x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    wide = [y.double() for y in leaves]
    wanted = torch.nn.functional.conv1d(wide[0].mT, wide[1][:, None], wide[2], padding=3, groups=9)[..., :11]
    wanted = wanted if activation is None else silu(wanted)
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 1e-2}[dtype]
    slopes = torch.autograd.grad(wanted.square().sum(), leaves)
    out = causal_conv1d_fn(x.mT, weight, bias, activation=activation)
    near(out, wanted, tolerance)
    for own, slope in zip(torch.autograd.grad(out.square().sum(), leaves), slopes, strict=True):
        near(own, slope, 10 * tolerance)
    with torch.no_grad():
        compiled = causal_conv1d_fn(x.mT, weight, bias, activation=activation)
        assert compiled.mT.is_contiguous()  # as x lies
        near(compiled, wanted, tolerance)
        state = torch.zeros(2, 9, 4, dtype=dtype)
        parts = [causal_conv1d_update(x.mT[..., t], state, weight, bias, activation)[..., None] for t in range(4)]
        parts.append(causal_conv1d_update(x.mT[..., 4:8], state, weight, bias, activation))
        parts += [causal_conv1d_update(x.mT[..., t : t + 1], state, weight, bias, activation) for t in range(8, 11)]
        near(torch.cat(parts, -1), wanted, tolerance)
        assert torch.equal(state, x.mT[..., -4:])


def test_packed_sequences_are_convolved_apart():
    rng = torch.Generator().manual_seed(2)
    x, weight = torch.randn((1, 5, 12), generator=rng), torch.randn((5, 4), generator=rng)
    ids = torch.tensor([[0] * 5 + [1] + [0] * 6])
    apart = [causal_conv1d_fn(part, weight, activation="silu") for part in x.split([5, 1, 6], -1)]
    for needs in (False, True):
        found = causal_conv1d_fn(x.requires_grad_(needs), weight, seq_idx=ids, activation="silu")
        torch.testing.assert_close(found.detach(), torch.cat(apart, -1), rtol=0, atol=1e-6)


def test_graphs():
    made = inputs(2)
    x, weight = made["x"].flatten(2).mT, torch.randn((H * P, 4), generator=torch.Generator().manual_seed(3))

    def layer(x, state, taps, dt, A, B, C, D):
        tokens = causal_conv1d_fn(x, weight, activation="silu").mT.unflatten(-1, (H, P))
        y, last = mamba_chunk_scan_combined(tokens, dt, A, B, C, D=D, dt_softplus=True, return_final_states=True)
        token = causal_conv1d_update(x[..., 0], taps, weight, activation="silu").unflatten(-1, (H, P))
        state = state + last
        return y, selective_state_update(state, token, dt[:, 0], A, B[:, 0], C[:, 0], D, dt_softplus=True), state

    given = [made[name] for name in ("dt", "A", "B", "C", "D")]
    taps, graph_taps = x[..., -4:].clone(), x[..., -4:].clone()
    wanted = layer(x, made["initial_states"], taps, *given)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found = compiled(x, made["initial_states"], graph_taps, *given)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(graph_taps, taps)


def test_wrong_arguments():
    made = inputs(2)
    x, dt, rates, b, c = (made[name] for name in ("x", "dt", "A", "B", "C"))
    with pytest.raises(ShapeError, match=r"x must be \(batch, T, heads, p\)"):
        mamba_chunk_scan_combined(x[0], dt, rates, b, c)
    with pytest.raises(ShapeError, match="heads of x must be a multiple of the groups of B, 2; got 3"):
        mamba_chunk_scan_combined(x[:, :, :3], dt, rates, b, c)
    for options, error, message in [
        ({"return_varlen_states": True}, ParameterError, "return_varlen_states needs cu_seqlens"),
        ({"cu_seqlens": torch.tensor([0, T])}, ShapeError, r"batch of 1; got x \(2, 21, 4, 5\) beside cu_seqlens"),
        ({"seq_idx": torch.zeros(2, 3)}, ShapeError, r"seq_idx must be \(batch, T\), \(2, 21\); got \(2, 3\)"),
        ({"dt_limit": (-1.0, 1.0)}, ParameterError, "dt must hold steps, at least 0; got -1"),
    ]:
        with pytest.raises(error, match=message):
            mamba_chunk_scan_combined(x, dt, rates, b, c, **options)
    state = made["initial_states"]
    for tokens, numbers, message in [
        (dt[:, 0], -rates, "A must hold rates, at most 0; got"),
        (-dt[:, 0].exp(), rates, "dt must hold steps, at least 0; got -"),
    ]:
        with pytest.raises(ParameterError, match=message):
            selective_state_update(state, x[:, 0], tokens, numbers, b[:, 0], c[:, 0])
    different = torch.arange(H * P * N).reshape(H, P, N) / -9.0
    with pytest.raises(ParameterError, match="A must be the same along the axes after heads"):
        selective_state_update(state, x[:, 0], dt[:, 0], different, b[:, 0], c[:, 0])
    with pytest.raises(ShapeError, match=r"state must be \(batch, heads, p, n\)"):
        selective_state_update(state[0], x[:, 0], dt[:, 0], rates, b[:, 0], c[:, 0])
    with pytest.raises(ShapeError, match=r"B must be \(batch, groups, n\)"):
        selective_state_update(state, x[:, 0], dt[:, 0], rates, b, c[:, 0])
    tokens, weight = torch.zeros(1, 3, 8), torch.zeros(3, 4)
    for wrong, error, message in [
        ((tokens[0], weight), ShapeError, r"x must be \(B, C, T\); got shape \(3, 8\)"),
        ((tokens, weight.mT), ShapeError, r"weight must be \(C, K\) for 3 channels; got shape \(4, 3\)"),
        ((tokens, weight, torch.zeros(4)), ShapeError, r"bias must be \(C,\), \(3,\); got shape \(4,\)"),
        ((tokens, weight, None, torch.zeros(8)), ShapeError, r"seq_idx must be \(B, T\), \(1, 8\)"),
        ((tokens, weight, None, None, tokens), ShapeError, r"initial_states must be \(B, C, K - 1\), \(1, 3, 3\); got"),
        (
            (tokens, weight, None, torch.zeros(1, 8), tokens[..., :3]),
            ParameterError,
            "seq_idx excludes initial_states and return_final_states",
        ),
        (
            (tokens, weight, None, None, None, False, None, "gelu"),
            ParameterError,
            "activation must be None, 'silu' or .*; got 'gelu'",
        ),
    ]:
        with pytest.raises(error, match=message):
            causal_conv1d_fn(*wrong)
    with pytest.raises(ShapeError, match=r"conv_state must be \(B, C, L\), \(1, 3\) and L at least 3"):
        causal_conv1d_update(tokens[..., 0], torch.zeros(1, 3, 2), weight)


FIRST = """
import numpy as np
import torch
import kernattn as ka
from kernattn.torch import fla

x = torch.ones(1, 4, 2, 4)
step = torch.ones(1, 2)[..., None].expand(1, 2, 4)
torch._dynamo.config.error_on_recompile = True

def layer(x):
    o, _ = fla.chunk_gated_delta_rule(x, x, x, -x[..., 0], x[..., 0])
    o = o + fla.causal_conv1d_fn(x.flatten(2).mT, torch.ones(8, 4)).mT.unflatten(-1, (2, 4))
    rates = -torch.ones(2)[:, None, None].expand(2, 4, 4).clone()
    return o + fla.selective_state_update(torch.zeros(1, 2, 4, 4), x[:, 0], step + 0, rates, x[:, 0], x[:, 0])[:, None]

graph = torch.compile(layer, fullgraph=True, backend="eager")
out = graph(x)
ka.gates.gla(np.ones((1, 1), np.float16))
torch.testing.assert_close(graph(x), out)
torch.testing.assert_close(layer(x), out)
print("fine")
"""


def test_the_first_call_of_a_process_may_be_that_of_a_graph():
    """And what is remembered of other arrays later makes no graph anew."""
    assert_fine(FIRST, KERNATTN_QUIET="1")
