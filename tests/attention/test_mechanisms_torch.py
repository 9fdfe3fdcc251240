"""The mechanisms of attention on tensors: gradients, and graphs that are whole or break before them."""

import numpy as np
import pytest

import kernattn as ka

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

N, PATTERN = 16, ka.patterns.local(3)
PHI = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=8, rng=0)
ROTATIONS, CENTROIDS = np.random.default_rng(1).standard_normal((2, 4, 2)), np.ones((1, 2, 4)) * [[[1.0], [-1.0]]]


def drawn(*shape):
    return torch.tensor(np.random.default_rng(len(shape)).standard_normal(shape), requires_grad=True)


Q, K, V, WEIGHTS, MIXTURES = drawn(2, N, 4), 2 * drawn(1, N, 4).detach(), drawn(2, N, 4), drawn(4, 4, 4), drawn(5, N)

CALLS = {
    "compressed": lambda q, k, v: ka.attention.compressed_attention(
        q, k, v, factor=4, weights_k=WEIGHTS, weights_v=WEIGHTS, causal=True
    ),
    "linformer": lambda q, k, v: ka.attention.linformer_attention(q, k, v, MIXTURES, MIXTURES),
    "nystrom": lambda q, k, v: ka.attention.nystrom_attention(q, k, v, num_landmarks=3),
    "scatterbrain": lambda q, k, v: ka.attention.scatterbrain_attention(q, k, v, PHI, PATTERN),
    "window": lambda q, k, v: ka.attention.window_attention(q, k, v, PHI, 5)[0],
    "kernel": lambda q, k, v: ka.attention.kernel_attention(q, k, v, KERNEL),
    "lsh": lambda q, k, v: ka.attention.lsh_attention(q, v, rotations=ROTATIONS, chunk=4),
    "routing": lambda q, k, v: ka.attention.routing_attention(q, k, v, CENTROIDS, window=4),
}
KERNEL = ka.kernels.Gaussian()
WHOLE = ["compressed", "linformer", "nystrom", "scatterbrain", "window"]


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name):
    k = K.expand(2, N, 4).clone().requires_grad_()
    assert torch.autograd.gradcheck(CALLS[name], (Q, k, V), fast_mode=True)
    with pytest.raises(ka.errors.MixedLibraryError, match="of numpy"):
        CALLS[name](Q.detach().numpy(), K, V)


@pytest.mark.parametrize("name", CALLS)
def test_autocast(name, monkeypatch):
    """Also in a graph, of what is traced there by array operations of its own."""
    given = [x.detach().float() for x in (Q, K.expand(2, N, 4), V)]
    for weights in ("WEIGHTS", "MIXTURES"):
        monkeypatch.setitem(globals(), weights, globals()[weights].detach().float())
    wanted = CALLS[name](*given)
    with torch.autocast("cpu", torch.bfloat16):
        out = CALLS[name](*given)
        if name == "compressed":
            torch.compiler.reset()
            found = torch.compile(CALLS[name], backend="eager", fullgraph=True)(*given)
            torch.testing.assert_close(found, out, rtol=0.01, atol=0.01)
    assert out.dtype == torch.bfloat16
    if name != "lsh":  # whose rounded rows may fall into other buckets
        assert (out.float() - wanted).abs().mean() < 0.05 * wanted.abs().mean()


def test_autocast_leaves_a_bias_its_digits():
    """An array counts as the number that it holds, whatever dtype rows are cast to, and so does its gradient."""
    q, k, v = (x.detach().float() for x in (Q, K, V))
    number, calls = 2 + 2**-7, ka.attention  # bfloat16 would make it 2
    near_bias = torch.full((2,), number, requires_grad=True)
    _, state = calls.window_attention(*(x.bfloat16() for x in (q, k, v)), PHI, 5)
    for call in (
        lambda b: calls.window_attention(q, k, v, PHI, 5, near_bias=b)[0],
        lambda b: calls.window_attention_step(state, q[:, 0], k[:, 0], v[:, 0], PHI, near_bias=b)[0],
        lambda b: calls.scatterbrain_attention(q, k, v, PHI, PATTERN, near_bias=b),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            out = call(near_bias)
            torch.testing.assert_close(out, call(number), rtol=0, atol=0)
        assert torch.autograd.grad(out.float().square().sum(), near_bias)[0].dtype == torch.float32


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # PyTorch looks, after a break
@pytest.mark.parametrize("name", CALLS)
def test_graphs(name):
    torch.compiler.reset()

    def run(q, k, v):
        return CALLS[name](q, k, v).sin()

    compiled = torch.compile(run, backend="aot_eager", fullgraph=name in WHOLE)
    wanted = CALLS[name](Q, K, V).sin()
    torch.testing.assert_close(compiled(Q, K, V), wanted)
    found, asked = (torch.autograd.grad(x.sum(), (Q, V)) for x in (compiled(Q, K, V), wanted))
    for x, y in zip(found, asked, strict=True):
        torch.testing.assert_close(x, y)
    if name not in WHOLE:
        torch.compiler.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(run, backend="aot_eager", fullgraph=True)(Q, K, V)


def test_numbers_that_are_learnt_in_a_graph():
    torch.compiler.reset()
    omega = torch.tensor(PHI.omega, requires_grad=True)

    def run(q, k, v, omega):
        return ka.attention.scatterbrain_attention(q, k, v, ka.with_numbers(PHI, omega=omega), PATTERN).sin().sum()

    wanted = torch.autograd.grad(run(Q, K, V, omega), (Q, omega))
    found = torch.autograd.grad(torch.compile(run, backend="aot_eager", fullgraph=True)(Q, K, V, omega), (Q, omega))
    for x, y in zip(found, wanted, strict=True):
        assert torch.any(y != 0)
        torch.testing.assert_close(x, y)


LENGTHS = {
    "pattern": lambda q, k, v: ka.softmax_attention(q, k, v, pattern=PATTERN),
    "reference": lambda q, k, v: ka.linear_attention(q, k, v, PHI, backend="reference"),
    "masked": lambda q, k, v: ka.attention.nystrom_attention(q, k, v, num_landmarks=3, key_mask=q[..., 0] > -1),
} | {name: CALLS[name] for name in ("compressed", "nystrom", "scatterbrain")}


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.slow if x in ("compressed", "nystrom", "reference") else ()) for x in LENGTHS],
)
def test_a_whole_graph_whose_length_changes(name):
    """Graphs are split as they are and not where least is kept, as in `test_graphs`. A mask goes the way of none."""
    torch.compiler.reset()
    run = torch.compile(LENGTHS[name], backend="aot_eager_default_partitioner", fullgraph=True)
    for n in (8, 12):
        q, k, v = (x[:, :n].detach().requires_grad_() for x in (Q, K.expand(2, N, 4), V))
        out, wanted = run(q, k, v), LENGTHS[name](q, k, v)
        torch.testing.assert_close(out, wanted)
        for x, y in zip(*(torch.autograd.grad(each.sum(), (q, k, v)) for each in (out, wanted)), strict=True):
            torch.testing.assert_close(x, y)


@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_compressed_keys_have_one_graph_for_all_lengths(causal):
    """Of any remainder and fewer queries than keys, with gradients; a second graph is of sizes that are symbols."""
    torch.compiler.reset()
    made = []

    def count(graph, inputs):
        made.append(graph)
        return graph

    def call(q, k, v):
        given = {"factor": 4, "weights_k": WEIGHTS, "weights_v": WEIGHTS, "causal": causal}
        given["key_mask"] = k[..., 0] < 1 if causal else None
        return ka.attention.compressed_attention(q, k, v, **given)

    compiled = torch.compile(call, backend=count, fullgraph=True)
    for length, n in ((13, 10), (16, 7), (18, 18), (23, 5), (36, 35)):
        q, k, v = drawn(2, n, 4), (2 * drawn(1, length, 4)).detach(), drawn(2, length, 4)
        wanted = call(q, k, v)
        torch.testing.assert_close(compiled(q, k, v), wanted)
        found, asked = (torch.autograd.grad(x.sin().sum(), (q, v)) for x in (compiled(q, k, v), wanted))
        torch.testing.assert_close(found, asked)
    assert len(made) == 2


@pytest.mark.slow
def test_compressed_keys_are_exported_for_all_lengths():
    """Of more tokens than a block has."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.Parameter(WEIGHTS.detach())

        def forward(self, q, k, v):
            given = {"factor": 4, "weights_k": self.weights, "weights_v": self.weights, "causal": True}
            return ka.attention.compressed_attention(q, k, v, **given)

    def rows(n):
        return tuple(drawn(2, n, 4).detach() for _ in range(3))

    sizes = ({1: torch.export.Dim("n", min=5, max=64)},) * 3
    layer = Layer()
    exported = torch.export.export(layer, rows(12), dynamic_shapes=sizes, strict=True)
    for given in (rows(5), rows(23)):
        torch.testing.assert_close(exported.module()(*given), layer(*given))


def test_known_segments_amid_transformations():
    """Derivatives of torch.func lend no memory of any tensor; ids that are mapped are no known numbers."""
    ids, mask = torch.arange(N) // 5, torch.arange(N) % 4 > 0
    k, given = K.expand(2, N, 4), {"segment_ids": ids, "key_mask": mask}

    def loss(q, given=given):
        return ka.attention.window_attention(q, k, V.detach(), PHI, 3, **given)[0].sin().sum()

    wanted = torch.autograd.grad(loss(Q), Q)[0]
    torch.testing.assert_close(torch.func.grad(loss)(Q.detach()), wanted)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(Q.detach()[None])[0], wanted)
    with pytest.raises(ka.errors.ParameterError, match="known numbers"):
        torch.func.vmap(lambda ids: loss(Q.detach(), {"segment_ids": ids}))(ids.expand(2, N))
