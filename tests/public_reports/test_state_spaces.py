"""State spaces and short convolutions: what users of mamba_ssm, causal_conv1d and models with such layers reported."""

import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError

torch = pytest.importorskip("torch")
fla = pytest.importorskip("kernattn.torch.fla")
rules = pytest.importorskip("public_reports.rules")
agrees, draw, near, recur = (getattr(rules, name) for name in ("agrees", "draw", "near", "recur"))
F = torch.nn.functional


@pytest.mark.parametrize(
    ("rates", "size"),
    [
        # differences of cumulative sums rose above 0, and states were infinite
        pytest.param((-1.0, -1e6), 1, id="vllm-project/vllm#37501"),
        # steps of padding, made by softplus of 0, had a part in slopes; and so #574, softplus of large numbers
        pytest.param((-0.001, -0.3), 25, id="state-spaces/mamba#368"),
    ],
)
def test_slopes_of_a_scan(rates, size):
    x, dt, b, c = draw((1, 300, 2, 4), (1, 300, 2), (1, 300, 1, 3), (1, 300, 1, 3))
    agrees(
        lambda *a: fla.mamba_chunk_scan_combined(*a, dt_softplus=True),
        lambda *a: scanned(*a)[0],
        (x, size * dt, torch.tensor(rates), b, c),
    )


def scanned(x, dt, rates, b, c):
    """Mamba-2's outputs, and states (1, heads, n, p), in float64."""
    step = F.softplus(dt)
    k, q = (y.expand(-1, -1, x.shape[2], -1) for y in (b, c))
    return recur(q, k, step[..., None] * x, step * rates, None, scale=1.0)


def test_states_of_prompts_of_unequal_length():
    """huggingface/transformers#48256: padding behind shorter prompts let their states fade."""
    lengths, rates = [3, 9, 1], torch.tensor([-0.5, -2.0])
    parts = [draw((1, n, 2, 4), (1, n, 2), (1, n, 1, 3), (1, n, 1, 3), seed=n) for n in lengths]
    x, dt, b, c = (torch.cat(rows, 1) for rows in zip(*parts, strict=True))
    options = {"cu_seqlens": torch.tensor([0, 3, 12, 13]), "dt_softplus": True, "return_varlen_states": True}
    _, states = fla.mamba_chunk_scan_combined(x, dt, rates, b, c, **options)
    for state, (x, dt, b, c) in zip(states, parts, strict=True):
        near(state, scanned(x.double(), dt.double(), rates, b, c)[1][0].mT)


@pytest.mark.parametrize(
    ("taps", "length", "tokens"),
    [
        pytest.param(4, 9, 1, id="sgl-project/sglang#38622"),  # a state longer than the taps
        pytest.param(5, 4, 3, id="sgl-project/sglang#38622"),  # five taps
        pytest.param(1, 0, 1, id="vllm-project/vllm-gaudi#1484"),  # one tap, which remembers nothing
        pytest.param(1, 0, 3, id="vllm-project/vllm-gaudi#1484"),
        pytest.param(4, 3, 2, id="fla-org/flash-linear-attention#1140"),  # fewer tokens than taps: slopes
    ],
)
def test_convolutions_go_on(taps, length, tokens):
    x, weight = draw((2, 6, length + tokens), (6, taps))
    state = x[..., :length].clone()
    out = fla.causal_conv1d_update(x[..., length:], state, weight, activation="silu")
    window = x.double()[..., length + 1 - taps :]
    near(out, F.silu(F.conv1d(window, weight.double()[:, None], groups=6)))
    assert torch.equal(state, x[..., tokens:])

    def go_on(before, x, weight):
        after = before.clone()
        return torch.cat([fla.causal_conv1d_update(x, after, weight), after], -1)

    def exact(before, x, weight):
        whole = torch.cat([before, x], -1)
        out = F.conv1d(whole[..., length + 1 - taps :], weight[:, None], groups=6)
        return torch.cat([out, whole[..., tokens:]], -1)

    if length:
        agrees(go_on, exact, (x[..., :length], x[..., length:], weight))


@pytest.mark.parametrize("n", [1, 63, 65, 257])
@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda x: x.mT.contiguous().mT, id="Dao-AILab/causal-conv1d#117"),  # reads beyond the last number
        pytest.param(lambda x: x, id="state-spaces/mamba#834"),  # packed sequences whose tokens lie side by side
        pytest.param(lambda x: F.pad(x.mT, (1, 2))[..., 1:-2].mT, id="state-spaces/mamba#774"),  # rows of odd strides
    ],
)
def test_packed_sequences_are_convolved_apart(n, lie):
    x, weight, bias = draw((1, 6, n), (6, 4), (6,))
    ids = torch.arange(n)[None] // 5

    def exact(x, weight, bias):
        starts = [F.pad(part, (3, 0)) for part in x.split([int(m) for m in ids.unique(return_counts=True)[1]], -1)]
        return torch.cat([F.conv1d(part, weight[:, None], bias, groups=6) for part in starts], -1)

    agrees(lambda *y: fla.causal_conv1d_fn(lie(y[0]), *y[1:], seq_idx=ids), exact, (x, weight, bias))


@pytest.mark.parametrize(("name", "shape"), [("A", (1,)), ("dt", (2, 1)), ("D", (1,)), ("C", (2, 1, 3))])
def test_steps_with_numbers_of_too_few_heads_are_refused(name, shape):
    """huggingface/transformers#40963: axes of heads and tokens were taken for each other."""
    x, dt, rates, b, c, d = draw((2, 4, 5), (2, 4), (4,), (2, 2, 3), (2, 2, 3), (4,))
    arguments = {"dt": dt, "A": -rates.exp(), "B": b, "C": c, "D": d}
    arguments[name] = -torch.ones(shape)
    with pytest.raises(ShapeError, match=f"^{name} must be"):
        fla.selective_state_update(torch.zeros(2, 4, 5, 3), x, **arguments)


def test_a_rate_that_overflowed_beside_a_step_of_zero():
    """ohdearquant/lattice#314: e^A was infinite, its product with softplus(-200) NaN, and so was the state for good."""
    x, b, c, state = draw((1, 6, 2, 3), (1, 6, 1, 4), (1, 6, 1, 4), (1, 2, 3, 4))
    rates, dt, before = -torch.tensor([100.0, 0.0]).exp(), torch.full((1, 6, 2), -200.0), state.clone()
    given_ = rates, b[:, 0], c[:, 0]
    assert not fla.mamba_chunk_scan_combined(x, dt, rates, b, c, dt_softplus=True).any()
    fla.selective_state_update(state, x[:, 0], dt[:, 0], *given_, dt_softplus=True)
    assert torch.equal(state, before)
    x, b, c = (y[0].transpose(0, 1) for y in (x, b, c))  # heads first
    assert not ka.gates.mamba2(x, torch.zeros(2, 6), rates, b, c)["g"].any()


def test_states_in_a_pool():
    """state-spaces/mamba#521 and Dao-AILab/causal-conv1d#29: sequences come and go, and copies of their states cost."""
    pool, x, dt, rates, b, c, taps, weight = draw(
        (5, 2, 3, 4), (2, 2, 3), (2, 2), (2,), (2, 1, 4), (2, 1, 4), (5, 6, 3), (6, 4)
    )
    at, (states, windows) = torch.tensor([3, 0]), (y.clone() for y in (pool, taps))
    own, window = (y[at].clone() for y in (pool, taps))
    given_ = x, dt, -rates.exp(), b, c
    out = fla.selective_state_update(pool, *given_, dt_softplus=True, state_batch_indices=at.int())
    assert torch.equal(out, fla.selective_state_update(own, *given_, dt_softplus=True))
    out = fla.causal_conv1d_update(x.flatten(1), taps, weight, conv_state_indices=at)
    assert torch.equal(out, fla.causal_conv1d_update(x.flatten(1), window, weight))
    states[at], windows[at] = own, window
    assert torch.equal(pool, states)
    assert torch.equal(taps, windows)
    for wrong in ([0, 5], [-1, 0], [2, 2]):
        with pytest.raises(ParameterError, match=r"^conv_state_indices must name rows of the pool, 0 to 4, each once"):
            fla.causal_conv1d_update(x.flatten(1), taps, weight, conv_state_indices=torch.tensor(wrong))
    with pytest.raises(ParameterError, match="cache_seqlens, for circular states, is not supported"):
        fla.causal_conv1d_update(x.flatten(1), taps, weight, cache_seqlens=at)


@pytest.mark.parametrize("z", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_adds_what_each_channel_has_of_its_own(z, dtype):
    """state-spaces/mamba#888: D (heads, p) was for sequences alone; and of 16 bits, one rounding is enough."""
    state, x, dt, rates, b, c, d, z_ = draw(
        (2, 4, 5, 3), (2, 4, 5), (2, 4), (4,), (2, 2, 3), (2, 2, 3), (4, 5), (2, 4, 5)
    )
    x, b, c, z_ = (y.to(dtype) for y in (x, b, c, z_))
    rates, z_, before = -rates.exp(), z_ if z else None, state.double()
    given_ = rates[:, None, None].expand(4, 5, 3), b, c, d
    out = fla.selective_state_update(state, x, dt[..., None].expand(2, 4, 5), *given_, z=z_, dt_softplus=True)
    step, (b, c) = F.softplus(dt.double())[..., None], (y.double().repeat_interleave(2, 1)[:, :, None] for y in (b, c))
    after = (step * rates[:, None]).exp()[..., None] * before + (step * x)[..., None] * b
    exact = ((after * c).sum(-1) + d * x) * (1 if z_ is None else F.silu(z_.double()))
    near(state, after)
    assert torch.all((out - exact).abs() <= (2**-8 if dtype == torch.bfloat16 else 1e-6) * exact.abs().clamp(min=1e-2))


def test_convolutions_of_pieces_are_those_of_the_whole():
    """state-spaces/mamba#739: how a long prompt goes through in chunks; Dao-AILab/causal-conv1d#118."""
    x, weight, bias, first = draw((2, 6, 12), (6, 4), (6,), (2, 6, 3))
    at, state, outs = 0, first, []
    for n in (5, 1, 2, 4):
        out, state = fla.causal_conv1d_fn(x[..., at : at + n], weight, bias, None, state, True, None, "silu")
        outs, at = [*outs, out], at + n
    whole = torch.cat([first, x], -1)
    near(torch.cat(outs, -1), F.silu(F.conv1d(whole.double(), weight.double()[:, None], bias.double(), groups=6)))
    assert torch.equal(state, x[..., -3:])
    out, state = fla.causal_conv1d_fn(x[..., :2], weight, return_final_states=True, final_states_out=first)
    assert state is first
    assert torch.equal(first, F.pad(x[..., :2], (1, 0)))
