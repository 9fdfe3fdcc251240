"""Decays in graphs of PyTorch: one graph for all lengths, and gates that are refused as it runs."""

import pytest

import kernattn as ka
import maps
from kernattn._arrays import namespaces
from kernattn.errors import ParameterError

torch = pytest.importorskip("torch")
testing = pytest.importorskip("torch._dynamo.testing")

FAVOR, SIGNED = maps.make("positive-softmax"), maps.make("trigonometric-softmax")
D, M = maps.DIM, FAVOR.num_features_of(maps.DIM)


def draw(n, watched=False):
    made = torch.Generator().manual_seed(n)
    rows = [torch.randn(2, n, D, dtype=torch.float64, generator=made) for _ in range(3)]
    logs = [-torch.rand(2, n, *own, dtype=torch.float64, generator=made) for own in ((), (M,))]
    return [x.requires_grad_(watched) for x in (*rows, *logs)]


def means(q, k, v, g, gk):
    out, state = ka.causal_linear_attention(q, k, v, FAVOR, g=g, gk=gk)
    token, after = ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], FAVOR, g=g[:, 0], gk=gk[:, 0])
    return out, state.s, token, after.z * after.peak.exp()


@pytest.mark.slow  # of gates alone, and of functions without them, graphs are made in the usual run
def test_one_graph_for_all_lengths(monkeypatch):
    """Also where the graph is the first to see a dtype, which it must not guard."""
    wanted = {n: means(*draw(n)) for n in (6, 70)}
    monkeypatch.setattr(namespaces, "_dtype_names", {})
    torch.compiler.reset()
    graphs = testing.CompileCounterWithBackend("aot_eager")
    whole = torch.compile(means, backend=graphs, fullgraph=True, dynamic=True)
    for n, found in wanted.items():
        torch.testing.assert_close(whole(*draw(n)), found)
    assert graphs.frame_count == 1
    given = draw(33, watched=True)
    slopes = [torch.autograd.grad(sum((x**2).sum() for x in f(*given)), given) for f in (whole, means)]
    torch.testing.assert_close(*slopes)
    assert graphs.frame_count == 2


@pytest.mark.parametrize("strict", [False, True])
def test_exported_means_take_any_number_of_tokens(strict):
    class Means(torch.nn.Module):
        def forward(self, q, k, v, g):
            return ka.causal_linear_attention(q, k, v, SIGNED, g=g)[0]

    n = torch.export.Dim("n", min=2, max=4096)
    exported = torch.export.export(Means(), tuple(draw(12)[:4]), dynamic_shapes=({1: n},) * 4, strict=strict)
    for length in (3, 50):
        given = draw(length)[:4]
        torch.testing.assert_close(exported.module()(*given), Means()(*given))


def test_vmap_of_means():
    q, k, v, g, gk = draw(7, watched=True)

    def mean(q, k, v, g, gk):
        return ka.causal_linear_attention(q, k, v, FAVOR, g=g, gk=gk)[0]

    torch.testing.assert_close(torch.vmap(mean)(q, k, v, g, gk), mean(q, k, v, g, gk))
    slope = torch.func.vmap(torch.func.grad(lambda g, *rows: mean(*rows[:3], g, rows[3]).sum()))
    (wanted,) = torch.autograd.grad(mean(q, k, v, g, gk).sum(), g)
    torch.testing.assert_close(slope(g, q, k, v, gk), wanted)


def test_gates_above_0_are_refused_as_a_graph_runs():
    """By name, as outside of graphs: one among others, that is made in the graph; of a token, and of a batch."""
    q, _, _, g, gk = draw(6)
    calls = [
        ("g", g, lambda x: ka.gated_linear_attention_step(None, q[:, 2], q[:, 2], q[:, 2], g=x[:, 2])[0]),
        ("g", g, lambda x: ka.causal_linear_attention(q, q, q, ka.features.relu(), g=x)[0]),
        ("gk", gk[..., :D], torch.vmap(lambda x: ka.gated_linear_attention(q, q, q, gk=x)[0])),
    ]
    for name, logs, call in calls:
        torch.compiler.reset()
        graph = torch.compile(lambda x, call=call: call(x * 1.0), fullgraph=True, backend="eager")
        torch.testing.assert_close(graph(logs), call(logs))
        one = logs.clone()
        one[0, 2] = 1e-3
        with pytest.raises(ParameterError, match=f"^{name} must be natural logarithms of decays, at most 0; got 0.001"):
            graph(one)


def test_a_map_that_is_drawn_in_a_function_breaks_its_graph():
    def call(x):
        phi = ka.random_features(ka.kernels.Softmax(), D, 8, rng=0)
        return ka.linear_attention(x * 1, x, x, phi) * 2

    torch.compiler.reset()
    x = draw(6)[0]
    torch.testing.assert_close(torch.compile(call, backend="eager")(x), call(x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="random_features draws on the host: make the map outside of the compiled"):
        torch.compile(call, backend="eager", fullgraph=True)(x)
