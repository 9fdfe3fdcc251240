"""kernattn.torch.fla: names of flash-linear-attention against the recurrence of tokens in float64."""

import inspect
import re
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

from kernattn.attention import GatedState  # noqa: E402
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError  # noqa: E402
from kernattn.torch import fla  # noqa: E402

B, T, H, HV, K, V = 2, 21, 2, 4, 5, 3


def recur(q, k, v, *, decay=None, a=None, b=None, beta=None, state=None, scale=K**-0.5):
    """One state for each head, token after token; decay (B, T, HV, 1 or K) has logs, and a reads before it."""
    q, k, v, decay, a, b, beta, s = (
        None if x is None else x.detach().double() for x in (q, k, v, decay, a, b, beta, state)
    )
    heads = v.shape[2]
    q, k = (x.repeat_interleave(heads // x.shape[2], 2) for x in (q, k))
    s = torch.zeros(len(q), heads, k.shape[3], v.shape[3], dtype=torch.float64) if s is None else s
    out = []
    for t in range(q.shape[1]):
        before, value = s, v[:, t]
        s = s if decay is None else decay[:, t].exp()[..., None] * s
        if beta is not None:
            value = beta[:, t, :, None] * (value - torch.einsum("bhk,bhkv->bhv", k[:, t], s))
        if a is not None:
            s = s + b[:, t, ..., None] * torch.einsum("bhk,bhkv->bhv", a[:, t], before)[:, :, None]
        s = s + k[:, t, ..., None] * value[:, :, None]
        out.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t], s))
    return torch.stack(out, 1), s


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def unit(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


@pytest.fixture
def given():
    """Queries and keys of two heads, values and all that stands beside them of four, with a reset."""
    q, k, v = draw(B, T, H, K), draw(B, T, H, K, seed=1), draw(B, T, HV, V, seed=2)
    g, gk = -draw(B, T, HV, seed=3).exp(), -draw(B, T, HV, K, seed=4).exp()
    g[:, 7] = gk[:, 9] = -torch.inf
    return q, k, v, g, gk, torch.sigmoid(draw(B, T, HV, seed=5)), draw(B, HV, K, V, seed=6)


def decays(name, g, gk):
    """What a rule takes, and the logs that the recurrence takes."""
    return ({"g": gk}, gk) if "kda" in name else ({"g": g}, g[..., None]) if "gated" in name else ({}, None)


DELTA = "chunk_gated_delta_rule", "chunk_kda", "chunk_delta_rule"
DELTA = *DELTA, *(name.replace("chunk", "fused_recurrent") for name in DELTA)


@pytest.mark.parametrize("name", DELTA)
def test_delta_rules(name, given):
    """With their own scale and another, heads of keys for two of values, states in and out, and in both layouts."""
    q, k, v, g, gk, beta, state = given
    rule, (gates, decay) = getattr(fla, name), decays(name, g, gk)
    out, none = rule(q, k, v, beta=beta, **gates, use_qk_l2norm_in_kernel=True)
    assert none is None
    close(out, recur(unit(q), unit(k), v, decay=decay, beta=beta)[0])
    options = {"scale": 0.7, "initial_state": state, "output_final_state": True}
    out, after = rule(q, unit(k), v, beta=beta, **gates, **options)
    assert out.is_contiguous()  # callers use `view`
    wanted, s = recur(q, unit(k), v, decay=decay, beta=beta, state=state, scale=0.7)
    close(out, wanted)
    close(after, s)
    if gates:
        options |= {"initial_state": state.mT, "state_v_first": True}
        out, after = rule(q, unit(k), v, beta=beta, **gates, **options)
        close(out, wanted)
        close(after, s.mT)


def backwards(*arrays):
    return [None if x is None else x.flip(1) for x in arrays]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["simple_gla", "gla", "retention", "lightning_attn"])
def test_decays(name, reverse, given):
    """Chunked and recurrent, forwards and, where the recurrent ones can, from the last token to the first."""
    q, k, v, g, gk, _, state = given
    q, k = (x.repeat_interleave(2, 2) for x in (q, k))
    gamma, heads = -draw(HV, seed=7).exp(), torch.arange(HV, dtype=torch.float64)
    constants = {"retention": torch.log(1 - 2 ** (-5 - heads)), "lightning_attn": -8 * heads / HV * (1 - 3 / 7)}
    own = {
        "simple_gla": {"g": g, "g_gamma": gamma},
        "gla": {"gk": gk},
        "lightning_attn": {"layer_idx": 3, "num_layers": 7},
    }
    decay = (
        gk if name == "gla" else (g + gamma if name == "simple_gla" else constants[name].expand(B, T, HV))[..., None]
    )
    options = {"initial_state": state, "output_final_state": True, **own.get(name, {})}
    rows = backwards(q, k, v, decay) if reverse else (q, k, v, decay)
    out, s = recur(*rows[:3], decay=rows[3], state=state)
    wanted = backwards(out)[0] if reverse else out
    got, after = getattr(fla, f"fused_recurrent_{name}")(q, k, v, reverse=reverse, **options)
    assert got.is_contiguous()
    close(got, wanted)
    close(after, s)
    if not reverse:
        if name == "gla":
            options["g"] = options.pop("gk")
        got, after = getattr(fla, f"chunk_{name}")(q, k, v, **options)
        close(got, wanted)
        close(after, s)


def test_reversed_packed_sequences(given):
    """Each is reversed in its own place."""
    q, k, v, g, *_ = (x[:1] for x in given)
    bounds, run = torch.tensor([0, 8, T]), fla.fused_recurrent_simple_gla
    parts = [[x[:, a:b] for x in (q, k, v, g)] for a, b in ((0, 8), (8, T))]
    wanted = [run(*part, reverse=True, output_final_state=True) for part in parts]
    for states in (False, True):
        out, after = run(q, k, v, g, reverse=True, output_final_state=states, cu_seqlens=bounds)
        close(out, torch.cat([o for o, _ in wanted], 1))
    close(after, torch.cat([s for _, s in wanted]))


@pytest.mark.parametrize("name", [*DELTA, "fused_recurrent_simple_gla", "fused_recurrent_retention", "chunk_rwkv7"])
def test_token_by_token(name, given):
    """A token alone is a step: with the states between them, tokens are the whole sequence."""
    q, k, v, g, gk, beta, state = given
    own = {"beta": beta, **decays(name, g, gk)[0]} if name in DELTA else {}
    if "simple" in name:
        own = {"g": g, "g_gamma": -draw(HV, seed=7).exp()}
    if name not in DELTA:
        q, k = (x.repeat_interleave(2, 2) for x in (q, k))
    arrays, rule = {"q": q, "k": unit(k), "v": v, **own}, getattr(fla, name)
    if "rwkv" in name:
        arrays = {"r": q, "w": gk, "k": k, "v": v, "a": unit(gk.exp()), "b": -unit(k)}
    out, last = rule(**arrays, initial_state=state, output_final_state=True)
    for t in range(T):
        token = {key: x if key == "g_gamma" else x[:, t : t + 1] for key, x in arrays.items()}
        one, state = rule(**token, initial_state=state, output_final_state=True)
        close(one, out[:, t : t + 1])
    close(state, last)


def test_rwkv7(given):
    """The chunked one has a scale of 1 by default, the recurrent one that of others, and it returns the state."""
    q, k, v, _, gk, _, state = given
    q, k = (x.repeat_interleave(2, 2) for x in (q, k))
    kk, rate = unit(draw(B, T, HV, K, seed=7)), torch.sigmoid(draw(B, T, HV, K, seed=8))
    pair = {"a": -kk, "b": kk * rate}
    wanted, s = recur(q, k, v, decay=gk, **pair, state=state, scale=1.0)
    out, none = fla.chunk_rwkv7(q, gk, k, v, **pair, initial_state=state, safe_gate=True)
    assert none is None
    close(out, wanted)
    out, after = fla.fused_recurrent_rwkv7(q, gk, k, v, **pair, initial_state=state)
    close(out, wanted * K**-0.5)
    close(after, s)
    close(fla.fused_mul_recurrent_rwkv7(q, gk, k, v, kk, rate, initial_state=state)[0], wanted)
    with pytest.raises(ShapeError, match=r"w must be .* beside r of shape"):
        fla.chunk_rwkv7(q, gk[..., :3], k, v, **pair)


@pytest.mark.parametrize("reverse", [False, True])
def test_rwkv6(reverse, given):
    """A token is read before it is in the state, and counts by a bonus of its own; packed, each by itself."""
    q, k, v, _, gk, _, state = given
    (q, k), u, scale = (x.repeat_interleave(2, 2) for x in (q, k)), draw(HV, K, seed=7), K**-0.5
    s, outs = state, []
    for t in range(T)[:: -1 if reverse else 1]:
        pair = k[:, t, ..., None] * v[:, t, :, None]
        outs.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t], s + u[..., None] * pair))
        s = gk[:, t].exp()[..., None] * s + pair
    wanted = torch.stack(outs[::-1] if reverse else outs, 1)
    call = partial(fla.fused_recurrent_rwkv6, reverse=reverse) if reverse else fla.chunk_rwkv6
    out, after = call(q, k, v, gk, u, initial_state=state, output_final_state=True)
    close(out, wanted)
    close(after, s)
    bounds = torch.tensor([0, 8, 8, T])
    packed = [x[:1] for x in (q, k, v, gk)]
    parts = [call(*(x[:, a:b] for x in packed), u, initial_state=state[:1]) for a, b in ((0, 8), (8, T))]
    options = {"initial_state": torch.cat([state[:1]] * 3), "output_final_state": True}
    out, after = call(*packed, u, cu_seqlens=bounds, **options)
    close(out, torch.cat([part for part, _ in parts], 1))
    close(after[1:2], state[:1])
    parts = [call(*(x[:, a:b] for x in packed), u)[0] for a, b in ((0, 8), (8, T))]
    close(call(*packed, u, cu_seqlens=bounds)[0], torch.cat(parts, 1))
    with pytest.raises(ShapeError, match=r"u \(H, K\)"):
        call(q, k, v, gk, u[:1])
    narrow = call(*(x.bfloat16() for x in (q, k, v)), gk.float(), u.float(), initial_state=state.float())[0]
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.double(), wanted, atol=2**-5 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize("bounds", [(0, 4, 4, 12, T), (0, 7, 14, T)])
@pytest.mark.parametrize("name", DELTA)
def test_packed_sequences_are_those_one_by_one(name, bounds, given):
    """With states in and out, and without; an empty sequence hands on its state."""
    q, k, v, g, gk, beta, state = (x[:1] for x in given)
    rule, gates = getattr(fla, name), decays(name, g, gk)[0]
    bounds, count = torch.tensor(bounds), len(bounds) - 1
    state = torch.cat([state, 2 * state, 3 * state, 4 * state][:count])
    apart, states = [], []
    for at in range(count):
        start, stop = bounds[at : at + 2]
        own = {key: x[:, start:stop] for key, x in {"beta": beta, **gates}.items()}
        rows = [x[:, start:stop] for x in (q, k, v)]
        if start < stop:
            out, s = rule(*rows, **own, initial_state=state[at : at + 1], output_final_state=True)
            apart.append((out, rule(*rows, **own)[0]))
        states.append(s if start < stop else state[at : at + 1])
    packed = {"beta": beta, **gates, "cu_seqlens": bounds}
    out, after = rule(q, k, v, **packed, initial_state=state, output_final_state=True)
    close(out, torch.cat([with_states for with_states, _ in apart], 1))
    close(after, torch.cat(states))
    close(rule(q, k, v, **packed)[0], torch.cat([without for _, without in apart], 1))
    if count == 4:
        assert torch.all(rule(q, k, v, **packed, output_final_state=True)[1][1] == 0)


@pytest.mark.parametrize("name", DELTA[:2])
def test_gates_in_the_kernel(name, given):
    """-e^A log(1 + e^(g + b)), or a sigmoid above a lower bound; beta from its logit, up to 2."""
    q, k, v, g, gk, beta, _ = given
    raw, a_log = draw(*(gk if name == "chunk_kda" else g).shape, seed=7), draw(HV, seed=8)
    bias = draw(*raw.shape[2:], seed=9)
    rate = a_log.exp().reshape(HV, *(raw.ndim - 3) * (1,))
    in_kernel = {"use_gate_in_kernel": True, "A_log": a_log, "dt_bias": bias.flatten()}
    in_kernel |= {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True}
    made = {"g": -rate * torch.log1p((raw + bias).exp()), "beta": 2 * torch.sigmoid(beta)}
    rule = getattr(fla, name)
    close(rule(q, unit(k), v, g=raw, beta=beta, **in_kernel)[0], rule(q, unit(k), v, **made)[0])
    if name == "chunk_kda":
        made["g"] = -3 * torch.sigmoid(rate * (raw + bias))
        out, _ = rule(q, unit(k), v, g=raw, beta=beta, **in_kernel, lower_bound=-3.0, safe_gate=True)
        close(out, rule(q, unit(k), v, **made)[0])


def test_gradients_and_graphs(given):
    """Of every tensor, through packed sequences too; one graph where no states of packed sequences are asked for."""
    q, k, v, _, _, beta, state = (x[:1, :9] if x.shape[0] == B and x.ndim < 5 else x for x in given)
    arguments = [x.detach().requires_grad_() for x in (q, k, v, -draw(1, 9, HV).exp(), beta, state[:1])]
    bounds = torch.tensor([0, 5, 9])

    def run(q, k, v, g, beta, state):
        whole = fla.chunk_gated_delta_rule(q, k, v, g, beta, None, state, True, True)
        parts = fla.chunk_gated_delta_rule(q, k, v, g, beta, cu_seqlens=bounds, use_qk_l2norm_in_kernel=True)
        return *whole, parts[0]

    assert torch.autograd.gradcheck(run, arguments, fast_mode=True)
    graph = torch.compile(run, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(graph(*arguments), run(*arguments), strict=True):
        close(got, wanted)


SIGNATURES = """
chunk_delta_rule: q k v beta scale? initial_state? output_final_state=0 use_qk_l2norm_in_kernel=0 cu_seqlens?
    cu_seqlens_cpu? **
chunk_gated_delta_rule: q k v g beta scale? initial_state? output_final_state=0 use_qk_l2norm_in_kernel=0
    use_beta_sigmoid_in_kernel=0 allow_neg_eigval=0 state_v_first=0 cu_seqlens? cu_seqlens_cpu? cp_context? **
chunk_gla: q k v g scale? initial_state? output_final_state=0 state_v_first=0 cu_seqlens? cu_seqlens_cpu?
chunk_kda: q k v g beta scale? initial_state? output_final_state=0 use_qk_l2norm_in_kernel=0 use_gate_in_kernel=0
    use_beta_sigmoid_in_kernel=0 allow_neg_eigval=0 safe_gate=0 lower_bound? disable_recompute=0
    return_intermediate_states=0 state_v_first=0 cu_seqlens? cu_seqlens_cpu? cp_context? **
chunk_lightning_attn: q k v layer_idx num_layers scale? initial_state? output_final_state=0 cu_seqlens? **
chunk_retention: q k v scale? initial_state? output_final_state=0 cu_seqlens? **
chunk_rwkv6: r k v w u scale? initial_state? output_final_state=0 cu_seqlens? cu_seqlens_cpu? **
chunk_rwkv7: r w k v a b scale=1.0 initial_state? output_final_state=0 cu_seqlens? cu_seqlens_cpu? safe_gate=0
    chunk_size? disable_recompute=0 cp_context? **
chunk_simple_gla: q k v g? g_gamma? scale? initial_state? output_final_state=0 state_v_first=0 cu_seqlens?
    cu_seqlens_cpu? **
fused_mul_recurrent_rwkv7: r w k v kk a scale=1.0 initial_state? output_final_state=0 reverse=0 cu_seqlens? **
fused_recurrent_delta_rule: q k v beta? scale? initial_state? output_final_state=0 use_qk_l2norm_in_kernel=0
    cu_seqlens?
fused_recurrent_gated_delta_rule: q k v g? gk? gv? beta? scale? initial_state? output_final_state=0
    use_qk_l2norm_in_kernel=0 use_gate_in_kernel=0 A_log? dt_bias? use_beta_sigmoid_in_kernel=0 allow_neg_eigval=0
    state_v_first=0 cu_seqlens? **
fused_recurrent_gla: q k v gk? gv? scale? initial_state? output_final_state=0 reverse=0 state_v_first=0 cu_seqlens?
    **
fused_recurrent_kda: q k v g beta A_log? dt_bias? scale? initial_state? output_final_state=0
    use_qk_l2norm_in_kernel=0 use_gate_in_kernel=0 use_beta_sigmoid_in_kernel=0 allow_neg_eigval=0 lower_bound?
    state_v_first=0 cu_seqlens? **
fused_recurrent_lightning_attn: q k v layer_idx num_layers scale? initial_state? output_final_state=0 reverse=0
    cu_seqlens? **
fused_recurrent_retention: q k v scale? initial_state? output_final_state=0 reverse=0 state_v_first=0 cu_seqlens? **
fused_recurrent_rwkv6: r k v w u scale? initial_state? output_final_state=0 reverse=0 cu_seqlens? **
fused_recurrent_rwkv7: r w k v a b scale? initial_state? output_final_state=1 cu_seqlens? **
fused_recurrent_simple_gla: q k v g? g_gamma? scale? initial_state? output_final_state=0 reverse=0 state_v_first=0
    cu_seqlens? **
"""


def test_signatures_are_those_of_release_0_5_2():
    """In its order; a question mark is a default of None."""
    defaults = {inspect.Parameter.empty: "", None: "?", False: "=0", True: "=1"}
    for line in re.sub(r"\n +", " ", SIGNATURES).strip().splitlines():
        name, own = line.split(": ")
        given = [x for x in inspect.signature(getattr(fla, name)).parameters.values() if x.kind != x.KEYWORD_ONLY]
        told = ["**" if x.kind == x.VAR_KEYWORD else x.name + _told(x.default, defaults) for x in given]
        assert " ".join(told) == own, name


def _told(default, defaults):
    return "=1.0" if type(default) is float else defaults[default]


def test_arguments_without_a_default_are_needed():
    """None stands for a default where there is one; elsewhere a rule would run without the part that is missing."""
    rows, numbers = draw(1, 3, 2, 5), -draw(1, 3, 2).exp()
    every = dict.fromkeys(("q", "k", "v", "r", "a", "b", "kk"), rows) | {"beta": -numbers, "u": rows[0, 0]}
    for name in set(fla.__all__) - {
        "mamba_chunk_scan_combined",
        "selective_state_update",
        "causal_conv1d_fn",
        "causal_conv1d_update",
    }:
        taken = inspect.signature(getattr(fla, name)).parameters.values()
        needed = [x.name for x in taken if x.default is x.empty and x.kind is x.POSITIONAL_OR_KEYWORD]
        by_head = name == "chunk_gated_delta_rule"
        given = every | {"g": numbers if by_head else -rows.exp(), "w": -rows.exp(), "layer_idx": 0, "num_layers": 2}
        given = {each: given[each] for each in needed}
        getattr(fla, name)(**given)
        for each in given.keys() - {"layer_idx", "num_layers"} - ({"g"} if by_head else set()):
            with pytest.raises(DTypeError, match=f"^{each} must be a tensor; got NoneType"):
                getattr(fla, name)(**given | {each: None})
    with pytest.raises(DTypeError, match="g must be a tensor"):
        fla.chunk_gated_delta_rule(rows, rows, rows, None, -numbers, use_gate_in_kernel=True, A_log=numbers[0, 0])


def test_narrow_tensors(given):
    """bfloat16 with gates in float32, or in bfloat16; the state is float32."""
    q, k, v, g, _, beta, _ = given
    q, k, v, beta = (x.bfloat16() for x in (q, unit(k), v, beta))
    out, after = fla.chunk_gated_delta_rule(q, k, v, g.float(), beta, output_final_state=True)
    assert (out.dtype, after.dtype) == (torch.bfloat16, torch.float32)
    wanted, s = recur(q, k, v, decay=g.float()[..., None], beta=beta)
    assert torch.max(torch.abs(out - wanted)) < 2**-8 * torch.max(torch.abs(wanted))
    assert torch.max(torch.abs(after - s)) < 1e-6 * torch.max(torch.abs(s))


REFUSED = {
    "cp_context": (ParameterError, {"cp_context": object()}),
    "head_first .* transpose to": (ParameterError, {"head_first": True}),
    "got GatedState; give its array": (DTypeError, {"initial_state": GatedState(draw(B, HV, K, V))}),
    "beta must be a tensor; got ndarray": (DTypeError, {"beta": draw(B, T, HV).numpy()}),
    "allow_neg_eigval": (ParameterError, {"allow_neg_eigval": True}),
    "A_log": (ParameterError, {"use_gate_in_kernel": True}),
    "exclude each other": (ParameterError, {"state_v_first": True, "transpose_state_layout": True}),
    "g must be .2, 21, 4. beside": (ShapeError, {"g": draw(B, T, HV, K)}),
    "beta must be": (ShapeError, {"beta": draw(B, T, H)}),
    "v must be .B, T, heads, channels.": (ShapeError, {"v": draw(B, T, V)}),
    "multiple": (ShapeError, {"v": draw(B, T, 3, V)}),
    "initial_state": (StateMismatchError, {"initial_state": draw(B, HV, V, K)}),
    "batch of 1": (ShapeError, {"cu_seqlens": torch.tensor([0, T])}),
    "no axis may be empty": (EmptyInputError, {"q": draw(B, 0, H, K), "cu_seqlens": torch.tensor([0, 0])}),
    "integers": (DTypeError, {"cu_seqlens": torch.tensor([0.0, T])}),
    "cu_seqlens must be a tensor of integers .* got list": (DTypeError, {"cu_seqlens": [0, T]}),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_does_not_fit_is_refused_by_name(told, given):
    q, k, v, g, _, beta, _ = given
    error, own = REFUSED[told]
    with pytest.raises(error, match=told):
        fla.chunk_gated_delta_rule(**{"q": q, "k": k, "v": v, "g": g, "beta": beta} | own)


def test_what_changes_no_result_is_taken(given):
    q, k, v, g, gk, beta, state = given
    out, after = fla.chunk_kda(q, unit(k), v, gk, beta, initial_state=state, output_final_state=True)
    same = {"chunk_size": 32, "head_first": False, "disable_recompute": True, "output_final_state": True}
    turned = {"initial_state": state.mT, "transpose_state_layout": True}
    with pytest.warns(DeprecationWarning, match="state_v_first"):
        other, last = fla.chunk_kda(q, unit(k), v, gk, beta, **turned, **same)
    close(other, out)
    close(last, after.mT)
    with pytest.raises(ParameterError, match="gv"):
        fla.fused_recurrent_gated_delta_rule(q, k, v, g, gv=v)
    with pytest.raises(ParameterError, match=f"rise from 0 to the number of tokens, {T}"):
        fla.chunk_kda(*(x[:1] for x in (q, k, v, gk, beta)), cu_seqlens=torch.tensor([0, 9, 5, T]))
