"""Gates and the delta rule: what users of flash-linear-attention, mamba_ssm and models with such layers reported."""

from itertools import pairwise

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")
fla = pytest.importorskip("kernattn.torch.fla")
rules = pytest.importorskip("public_reports.rules")
agrees, draw, given, near, recur, slopes, unit = (
    getattr(rules, name) for name in ("agrees", "draw", "given", "near", "recur", "slopes", "unit")
)
F = torch.nn.functional
STATES = {"output_final_state": True}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(1.0, id="fla-org/flash-linear-attention#77"),  # slopes of strong decays were NaN
        pytest.param(1e5, id="fla-org/flash-linear-attention#99"),  # and so were the pseudo-values
        pytest.param(3e37, id="fla-org/flash-linear-attention#20"),  # resets by a tenth of the least float
    ],
)
def test_strong_gates_have_outputs_and_slopes(size):
    q, k, v, _, gk, beta = given(70)
    gk = torch.where(torch.rand(gk.shape, generator=torch.Generator().manual_seed(1)) < 0.2, size * gk, gk)
    agrees(lambda *x: fla.chunk_kda(*x)[0], lambda *x: recur(*x)[0], (q, k, v, gk, beta))
    agrees(lambda *x: fla.chunk_gla(*x)[0], lambda *x: recur(*x, None)[0], (q, k, v, gk))


def test_a_gate_of_zero_is_no_gate():
    """fla-org/flash-linear-attention#389: with logs of 0 the gated rule was not the plain one; #862: nor its slopes."""
    q, k, v, g, _, beta = given(130)
    for gates in (0 * g, None):
        agrees(
            lambda q, k, v, beta: fla.chunk_gated_delta_rule(q, k, v, gates, beta)[0],  # noqa: B023
            lambda q, k, v, beta: recur(q, k, v, 0 * g, beta)[0],
            (q, k, v, beta),
        )


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_slopes_of_gates_that_are_saturated(lower_bound):
    """fla-org/flash-linear-attention#1007: where e^A is infinite, the slopes of gates were 0 times it."""
    q, k, v, _, raw, beta = given(9)
    options = {"use_gate_in_kernel": True, "lower_bound": lower_bound}
    _, found = slopes(
        lambda raw, a: fla.chunk_kda(q, k, v, raw, beta, A_log=a, **options)[0], (raw, 0 * q[0, 0, :, 0] + 99)
    )
    assert all(torch.isfinite(x).all() for x in found)


def test_a_bounded_gate_without_a_rate():
    """fla-org/flash-linear-attention#1107: a gate with a lower bound asked for A."""
    q, k, v, _, raw, beta = given(9)
    out, _ = fla.chunk_kda(q, k, v, raw, beta, use_gate_in_kernel=True, lower_bound=-5.0)
    near(out, recur(*(x.double() for x in (q, k, v, -5 * torch.sigmoid(raw.double()), beta)))[0])


def test_states_beyond_half_precision():
    """meta-pytorch/attention-gym#464: a state of 65536 was infinite beside queries in half precision."""
    q, k, v, g, _, beta = given(70, dtype=torch.float16)
    state = torch.full((1, 2, 8, 8), 65536.0)
    _, after = fla.chunk_gated_delta_rule(q, k, v, g / 10, beta / 10, initial_state=state, **STATES)
    near(after, recur(q, k, v, g / 10, beta / 10, state)[1])


def test_slow_decays_beside_bfloat16():
    """osaurus-ai/vmlx-swift#433: decays above 0.998 were rounded to 1 over 4,096 tokens."""
    q, k, v, _, gk, beta = given(4096, 1, 4, torch.bfloat16)
    gk, beta = torch.full_like(gk, -8e-5), 0.003 + 0 * beta
    near(fla.chunk_kda(q, k, v, gk, beta, **STATES)[1], recur(q, k, v, gk, beta)[1])


def test_states_beside_bfloat16_tokens_one_by_one():
    """ollama/ollama#15865: each step rounded the state to the dtype of its token."""
    q, k, v, g, _, beta = given(300, 1, 4, torch.bfloat16)
    state, g = torch.zeros(1, 1, 4, 4), g / 100
    for t in range(300):
        rows = (x[:, t : t + 1] for x in (q, k, v))
        logs = {"g": g[:, t : t + 1], "beta": beta[:, t : t + 1]}
        _, state = fla.fused_recurrent_gated_delta_rule(*rows, **logs, initial_state=state, **STATES)
    near(state, recur(q, k, v, g, beta)[1])


def test_the_gate_of_the_first_token_meets_nothing():
    """QwenLM/FlashQLA#28: its slope was not 0, and slopes of strong gates lost their digits."""
    q, k, v, g, _, beta = given(70)
    arrays = q, k, v, 50 * g, beta
    agrees(lambda *x: fla.chunk_gated_delta_rule(*x)[0], lambda *x: recur(*x)[0], arrays)
    for state in (None, torch.zeros(1, 2, 8, 8)):
        _, found = slopes(lambda *x: fla.chunk_gated_delta_rule(*x, initial_state=state)[0], arrays)  # noqa: B023
        assert not found[3][:, 0].any()


def test_outputs_of_masked_tokens_are_written():
    """ml-explore/mlx-lm#1072: they were what memory had held. A token that is not there reads the state before it."""
    q, k, v, g, _, beta = given(70)
    mask = torch.arange(70) % 3 == 1
    rows = (x.transpose(1, 2) for x in (q, k, v))
    out, _ = ka.gated_linear_attention(*rows, g=g.mT, beta=beta.mT, key_mask=mask)
    near(out.transpose(1, 2), recur(q, k, v, *(x * mask[:, None] for x in (g, beta)))[0])


def test_rows_of_zeros_and_small_ones_are_normalised():
    """ml-explore/mlx-lm#1624: the epsilon of the norm stood elsewhere; keras-team/keras#23075: slopes at 0 were NaN."""
    q, k, v, g, _, beta = given(20)
    q[:, 3], k[:, 4], k[:, 7], q[:, 8] = 0, 0, 1e-4 * k[:, 7], 1e-5 * q[:, 8]
    agrees(
        lambda *x: fla.chunk_gated_delta_rule(*x, use_qk_l2norm_in_kernel=True)[0],
        lambda q, k, *x: recur(unit(q), unit(k), *x)[0],
        (q, k, v, g, beta),
    )


def test_nothing_depends_on_later_gates():
    """fla-org/flash-linear-attention#1240: the last gate changed outputs and slopes of the tokens before it."""
    q, k, v, _, gk, beta = given(22, 4)
    other = torch.cat([gk[:, :21], 9 * gk[:, 21:]], 1)
    (out, found), (same, again) = (
        slopes(lambda *x: fla.chunk_kda(*x)[0][:, :21], (q, k, v, x, beta)) for x in (gk, other)
    )
    assert torch.equal(out, same)
    for one, two in zip(found, again, strict=True):
        assert torch.equal(one[:, :21], two[:, :21])


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(16, id="vllm-project/vllm#23279"),  # packed prompts in pieces that end within chunks
        pytest.param(1, id="state-spaces/mamba#500"),  # a token, and all from there
    ],
)
def test_packed_prompts_in_pieces(first):
    lengths = np.array([37, 2, 90, 33])
    q, k, v, _, gk, beta = given(int(lengths.sum()))
    parts = [
        [x[:, end - n : end] for x in (q, k, v, gk, beta)] for n, end in zip(lengths, lengths.cumsum(), strict=True)
    ]
    state, found = None, []
    for low, high in ((0, first), (first, 90)):
        pieces = [[x[:, low:high] for x in part] for part in parts]
        ends = np.cumsum([0, *(piece[0].shape[1] for piece in pieces)])
        packed = [torch.cat(x, 1) for x in zip(*pieces, strict=True)]
        out, state = fla.chunk_kda(*packed, initial_state=state, cu_seqlens=torch.tensor(ends), **STATES)
        found.append([out[:, start:stop] for start, stop in pairwise(ends)])
    for at, (part, *outs) in enumerate(zip(parts, *found, strict=True)):
        exact, after = recur(*part)
        near(torch.cat(outs, 1), exact)
        near(state[at], after[0])


@pytest.mark.parametrize("bounds", [[0, 0, 4, 4, 9], [0, 4, 9, 9]])
def test_packed_sequences_without_tokens(bounds):
    """MoonshotAI/FlashKDA#32: a sequence of no tokens leaves its state as it was, and the others alone."""
    q, k, v, _, gk, beta = given(9)
    (state,) = draw((len(bounds) - 1, 2, 8, 8), seed=1)
    out, after = fla.chunk_kda(q, k, v, gk, beta, initial_state=state, cu_seqlens=torch.tensor(bounds), **STATES)
    for at, (start, stop) in enumerate(pairwise(bounds)):
        if start == stop:
            assert torch.equal(after[at], state[at])
            continue
        exact, left = recur(*(x[:, start:stop] for x in (q, k, v, gk, beta)), state[at : at + 1])
        near(out[:, start:stop], exact)
        near(after[at], left[0])


def test_sequences_of_one_length_are_a_batch(monkeypatch):
    """fla-org/flash-linear-attention#1077: 65,536 packed sequences in one call, whose outputs were wrong."""
    bounds = [0, 1, 4, 5, 5, 8, 9]
    q, k, v, g, _, beta = given(9)
    (state,) = draw((6, 2, 8, 8), seed=1)
    own, batches = fla._layout._attend, []
    monkeypatch.setattr(fla._layout, "_attend", lambda x, *y, **z: batches.append(len(x["v"])) or own(x, *y, **z))

    def flat(outs, states):
        return torch.cat([x.flatten() for x in (*outs, *states)])

    def rule(q, k, v, g, beta, state):
        options = {"initial_state": state, "cu_seqlens": torch.tensor(bounds), **STATES}
        return flat(*fla.chunk_gated_delta_rule(q, k, v, g, beta, **options))

    def exact(*rows):
        *rows, state = rows
        parts = [[x[:, start:stop] for x in rows] for start, stop in pairwise(bounds)]
        found = [recur(*x, s[None]) if x[0].shape[1] else (x[2], s) for x, s in zip(parts, state, strict=True)]
        return flat(*zip(*found, strict=True))

    agrees(rule, exact, (q, k, v, g, beta, state))
    assert sorted(batches) == [2, 3]


def test_rows_beyond_the_last_sequence_are_refused():
    """fla-org/flash-linear-attention#892: rows after the last packed sequence were never written, and held NaN."""
    q, k, v, g, _, beta = given(20)
    with pytest.raises(ParameterError, match=r"rise from 0 to the number of tokens, 20; got \[0, 5, 16\]"):
        fla.chunk_gated_delta_rule(q, k, v, g, beta, cu_seqlens=torch.tensor([0, 5, 16]))


def test_decays_instead_of_their_logs_are_refused():
    """fla-org/flash-linear-attention#11, #150: logs above 0, decays among them, made gradients and outputs NaN."""
    q, k, v, _, gk, beta = given(5)
    calls = {
        "w": lambda: fla.chunk_rwkv7(q, gk.exp(), k, v, k, k),
        "g": lambda: fla.chunk_gla(q, k, v, gk.exp()),
        "g_gamma": lambda: fla.chunk_simple_gla(q, k, v, None, beta[0, 0]),
    }
    for name, call in calls.items():
        with pytest.raises(ParameterError, match=f"^{name} must be natural logarithms of decays, at most 0; got 0"):
            call()
    with pytest.raises(ParameterError, match=r"^A must hold rates, at most 0; got 1"):
        fla.mamba_chunk_scan_combined(v, beta, torch.ones(2), k, q)


def test_a_state_alone_is_learnt():
    """BlinkDL/RWKV-LM#246: with nothing else to learn, the output was cut off from the state."""
    q, k, v, _, gk, _ = given(30)
    state, u = draw((1, 2, 8, 8), (2, 8), seed=1)
    agrees(
        lambda s: fla.chunk_rwkv6(q, k, v, gk, 0 * u, initial_state=s)[0],
        lambda s: recur(q.double(), *(F.pad(x.double(), (0, 0, 0, 0, 1, -1)) for x in (k, v, gk)), None, s)[0],
        [state],
    )  # each token reads the state before it


@pytest.mark.parametrize("rule", ["gated_delta_rule", "simple_gla"])
def test_slopes_that_lie_otherwise_in_memory(rule):
    """fla-org/flash-linear-attention#1138: the slope of a sum is one number, repeated by a stride of 0."""
    q, k, v, g, _, beta = given(40)
    packed = torch.cat([q, k, v, v], -1)
    leaves = [x.detach().requires_grad_() for x in (*packed.split(8, -1)[:3], g.mT.contiguous().mT, beta)]
    given_ = leaves[:4] if rule == "simple_gla" else leaves
    found = torch.autograd.grad(getattr(fla, f"chunk_{rule}")(*given_)[0].sum(), given_)
    wide = [x.detach().double().requires_grad_() for x in given_]
    exact = recur(*wide, *([None] if rule == "simple_gla" else []))[0]
    for one, right in zip(found, torch.autograd.grad(exact.sum(), wide), strict=True):
        near(one, right)


def test_the_bonus_of_a_token_is_rounded_once():
    """fla-org/flash-linear-attention#36: RWKV-6 in 16 bits, whose outputs are sums of two parts."""
    q, k, v, _, gk, _ = given(30, dtype=torch.bfloat16)
    (u,) = draw((2, 8))
    out, _ = fla.chunk_rwkv6(q, k, v, gk, u, scale=1.0)
    before = recur(q.double(), *(F.pad(x.double(), (0, 0, 0, 0, 1, -1)) for x in (k, v, gk)), None, scale=1.0)[0]
    exact = before + (q.double() * u * k).sum(-1, keepdim=True) * v
    assert torch.all((out - exact).abs() <= 2**-8 * exact.abs().clamp(min=1e-3))
