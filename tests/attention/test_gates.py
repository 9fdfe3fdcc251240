"""Members of gated linear attention: each beside the recurrence of its paper."""

import numpy as np
import pytest

import kernattn as ka
from gated import D, E, close, recur
from kernattn.attention import GatedState
from kernattn.errors import KernattnError, ParameterError, ShapeError
from xp import KINDS, to_numpy


@pytest.mark.parametrize("name", ["a_log", "dt_bias"])
def test_parameters_that_do_not_fit_the_heads_are_refused(name):
    arguments = {"a_log": np.zeros(4), "dt_bias": np.zeros(4)}
    with pytest.raises(ShapeError, match=rf"{name} \(heads,\); got \(2, 4, 9\) and \(3,\)"):
        ka.gates.softplus(np.zeros((2, 4, 9)), **arguments | {name: np.zeros(3)})


def test_members():
    """Each member beside its paper's recurrence."""
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 4, 9, D))
    gamma = 1 - 2.0 ** (-5 - np.arange(4))
    far = np.tril(gamma[:, None, None] ** np.maximum(np.subtract.outer(np.arange(9), np.arange(9)), 0))
    out, _ = ka.gated_linear_attention(q, k, v, **ka.gates.retention(4, like=q), scale=1.0)
    close(out, (far * (q @ k.mT)) @ v, 1e-12)
    slopes = 2.0 ** (-2 * (np.arange(4) + 1.0))
    np.testing.assert_allclose(ka.gates.lightning(4, 0, 12, like=q)["g"][:, 0], -slopes * (1 + 1e-5), rtol=1e-12)
    x, dt, a = rng.standard_normal((4, 9, E)), rng.uniform(0.1, 1, (4, 9)), -rng.uniform(0.5, 2, 4)
    b, c = rng.standard_normal((2, 1, 9, D))
    out, _ = ka.gated_linear_attention(**ka.gates.mamba2(x, dt, a, b, c))
    s, wanted = np.zeros((4, D, E)), []
    for t in range(9):
        s = np.exp(dt[:, t] * a)[:, None, None] * s + b[:, t, :, None] * (dt[:, t, None] * x[:, t])[:, None, :]
        wanted.append(np.einsum("ad,hde->he", c[:, t], s))
    close(out, np.stack(wanted, 1))
    f = rng.uniform(0, 1, (4, 9, D))
    member = ka.gates.hgrn2(f)
    out, _ = ka.gated_linear_attention(q=q, v=v, **member)
    close(out, recur(q, 1 - f, v, gk=np.log(f), scale=1.0)[0])
    w, a, b = -rng.uniform(0, 1, (4, 9, D)), *(0.3 * rng.standard_normal((2, 4, 9, D)))
    out, _ = ka.gated_linear_attention(**ka.gates.rwkv7(q, w, k, v, a, b))
    close(out, recur(q, k, v, gk=w, erase=(a, b), scale=1.0)[0])
    logits = rng.standard_normal((4, 9, D))
    np.testing.assert_allclose(ka.gates.gla(logits)["gk"], np.log(1 / (1 + np.exp(-logits))) / 16)
    np.testing.assert_allclose(
        ka.gates.softplus(logits[..., 0], np.zeros(4), np.ones(4))["g"], -np.log1p(np.exp(logits[..., 0] + 1))
    )


def test_rates_that_overflow_make_no_nan():
    """e^A is infinite from A = 89 on, and log(1 + e^a) is 0 for a = -200."""
    a, a_log, c = (np.full(shape, x, np.float32) for shape, x in (((1, 2), -200), (1, 100), (1, 0)))
    assert np.all(ka.gates.softplus(a, a_log, c)["g"] == 0)
    assert np.all(ka.gates.kda(a[..., None], a_log, c[:, None], a)["gk"] == 0)


def by_forgetting(q, f, v):
    """HGRN2 as it is written, in f itself, which may be below 0 here: S' = diag(f) S + (1 - f) v^T."""
    s, out = np.zeros((*f.shape[:-2], D, E)), []
    for t in range(f.shape[-2]):
        s = f[..., t, :, None] * s + (1 - f[..., t, :, None]) * v[..., t, None, :]
        out.append(np.einsum("...a,...ae->...e", q[..., t, :], s))
    return np.stack(out, -2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forget_gates_of_0_have_the_gradient_of_their_recurrence(dtype):
    rng = np.random.default_rng(8)
    q, v, h = (rng.standard_normal((2, 22, c)) for c in (D, E, E))
    f = rng.uniform(0, 1, (2, 22, D))
    f[:, 3], f[:, 15:18, 1], f[0, 19:, 2], f[1, 17], f[1, 5:9, 0] = 0, 0, 0, 1, 0
    wanted = np.empty_like(f)
    for at in np.ndindex(*f.shape):  # of a polynomial of degree 1 in each f
        up, down = f.copy(), f.copy()
        up[at], down[at] = up[at] + 1, down[at] - 1
        wanted[at] = np.sum(h * (by_forgetting(q, up, v) - by_forgetting(q, down, v))) / 2
    q, v, h, f = (x.astype(dtype) for x in (q, v, h, f))
    tolerance = {"float32": 2e-6, "float64": 1e-12}[dtype]
    found = {}
    given = ka.gates.hgrn2(f)
    (out, _), pullback = ka.vjp(ka.gated_linear_attention, q=q, v=v, **given)
    close(out, by_forgetting(*(x.astype("f8") for x in (q, f, v))), tolerance)
    slopes = pullback((h, None))
    found["vjp"] = slopes.gk * np.exp(-given["gk"]) - slopes.k

    def loss(f, q, v, h):
        return (h * ka.gated_linear_attention(q=q, v=v, **ka.gates.hgrn2(f))[0]).sum()

    torch = pytest.importorskip("torch")
    x, *others = (torch.tensor(x) for x in (f, q, v, h))
    x.requires_grad_()
    loss(x, *others).backward()
    found["torch"] = x.grad.numpy()
    if dtype == "float32":
        jax = pytest.importorskip("jax")
        found["jax"] = np.asarray(jax.jit(jax.grad(loss))(*map(jax.numpy.asarray, (f, q, v, h))))
    for name, df in found.items():
        np.testing.assert_allclose(df, wanted, rtol=0, atol=tolerance * abs(wanted).max(), err_msg=name)


def test_forget_gates_of_16_bits_have_logs_in_float32():
    f = np.array([[0.0, 0.5, 1.0]], np.float16)
    given = ka.gates.hgrn2(f)
    assert (given["gk"].dtype, given["k"].dtype) == (np.float32, np.float16)
    np.testing.assert_allclose(np.exp(given["gk"]), [[1e-20, 0.5, 1]], rtol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unit(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def rows(*shapes, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def outer(x, y):
    return x[..., :, None] * y[..., None, :]


def test_rwkv6_reads_before_its_token():
    """From a state, and the state goes on: o = r^T (S + diag(u) k v^T), S = diag(e^w) S + k v^T."""
    r, k, w, v, u, before = rows((2, 9, D), (2, 9, D), (2, 9, D), (2, 9, E), (2, D), (2, D, E))
    w = -np.exp(w)
    w[:, 4] = -np.inf
    given, bonus = ka.gates.rwkv6(r, w, k, v, u)
    out, after = ka.gated_linear_attention(**given, state=GatedState(before))
    s = before
    for t in range(9):
        kv = outer(k[:, t], v[:, t])
        wanted = np.einsum("hd,hde->he", r[:, t], s + u[..., None] * kv)
        close((out[:, :-1] + bonus)[:, t], wanted)
        s = np.exp(w[:, t])[..., None] * s + kv
    close(after.s, s)


def test_delta_net_and_kimi_delta_attention():
    """S = (I - beta k k^T) diag(alpha) S + beta k v^T, keys and queries of norm 1."""
    q, k, v, a, b = rows((2, 9, D), (2, 9, D), (2, 9, E), (2, 9, D), (2, 9))
    a_log, dt_bias = rows((2,), (2, D), seed=4)
    alpha = np.exp(-np.exp(a_log)[:, None, None] * np.log1p(np.exp(a + dt_bias[:, None])))
    cases = [
        (ka.gates.kda(a, a_log, dt_bias, b), alpha, sigmoid(b)),
        (ka.gates.delta_net(b, most=2), np.ones_like(a), 2 * sigmoid(b)),
        ({**ka.gates.softplus(a[..., 0], a_log, dt_bias[:, 0]), **ka.gates.delta_net(b)}, alpha[..., :1], sigmoid(b)),
    ]
    for given, fades, beta in cases:
        out, after = ka.gated_linear_attention(q, k, v, **given)
        s = np.zeros((2, D, E))
        for t in range(9):
            key, own = unit(k[:, t]), beta[:, t, None, None]
            s = (np.eye(D) - own * outer(key, key)) @ (fades[:, t, :, None] * s) + own * outer(key, v[:, t])
            close(out[:, t], np.einsum("hd,hde->he", unit(q[:, t]) / D**0.5, s))
        close(after.s, s)
    assert ka.gates.delta_net(np.array([-1e4, 1e4]))["beta"].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_gated_delta_net_2(dtype):
    """S = (I - k (b * k)^T) diag(alpha) S + k (w * v)^T."""
    q, k, v, g, b, w = rows((2, 9, D), (2, 9, D), (2, 9, E), (2, 9, D), (2, 9, D), (2, 9, E))
    q, k, v, b, w = (x.astype(dtype) for x in (q, unit(k), v, sigmoid(b), sigmoid(w)))
    g = -np.exp(g).astype("float32" if dtype == "float16" else dtype)
    g[:, 4, 1:] = -np.inf
    out, after = ka.gated_linear_attention(q, **ka.gates.gdn2(k, v, g, b, w))
    s, (q, k, v, b, w) = np.zeros((2, D, E)), (x.astype(float) for x in (q, k, v, b, w))
    for t in range(9):
        s = np.exp(g[:, t])[..., None] * s
        s = s - outer(k[:, t], np.einsum("hd,hde->he", b[:, t] * k[:, t], s)) + outer(k[:, t], w[:, t] * v[:, t])
        close(out[:, t], np.einsum("hd,hde->he", q[:, t] / D**0.5, s), 1e-12 if dtype == "float64" else 1e-2)
    close(after.s, s, 1e-12 if dtype == "float64" else 1e-3)


@pytest.mark.parametrize("h", [1, 3])
def test_delta_product(h):
    """Of each token h steps of gradient descent on |S^T k - v|^2, after the state has faded once."""
    q, k, v, g, b = rows((2, 9, D), (2, 9, h, D), (2, 9, h, E), (2, 9), (2, 9, h))
    g, beta = -np.exp(g), 2 * sigmoid(b)
    for gates in ({}, {"g": g}):
        out, after = ka.gated_linear_attention(**ka.gates.delta_product(q, k, v, beta, **gates))
        s = np.zeros((2, D, E))
        for t in range(9):
            s = np.exp(g[:, t])[:, None, None] * s if gates else s
            for j in range(h):
                key = unit(k[:, t, j])
                error = np.einsum("hd,hde->he", key, s) - v[:, t, j]
                s = s - beta[:, t, j, None, None] * outer(key, error)
            close(out[:, h - 1 :: h][:, t], np.einsum("hd,hde->he", unit(q[:, t]) / D**0.5, s))
        assert not np.delete(out, np.s_[h - 1 :: h], axis=1).any()
        close(after.s, s)


@pytest.mark.parametrize("xp", [xp for xp in KINDS if xp is not np], ids=str)
def test_members_of_other_libraries(xp):
    """Arrays in, arrays of the same library out, of the same numbers."""
    r, k, w, u, *steps = (x.astype("f4") for x in rows((2, 6, D), (2, 6, D), (2, 6, D), (2, D), *2 * [(2, 6, 3, D)]))

    def every(r, k, w, u, keys, values):
        gate, logs = r[..., 0] ** 2, -(w**2)
        given, bonus = ka.gates.rwkv6(r, logs, k, w, u)
        yield from (given["q"], given["gk"], bonus)
        yield from ka.gates.gdn2(k, w, logs, r, w)["erase"]
        product = ka.gates.delta_product(r, keys, values, keys[..., 0], -gate)
        yield from (product["q"], product["g"])
        kimi = ka.gates.kda(r, u[:, 0], u, gate)
        yield from (kimi["gk"], kimi["beta"])

    given = r, k, w, u, *steps
    run = xp.whole(lambda *given: list(every(*given)))
    for got, wanted in zip(run(*map(xp.asarray, given)), every(*given), strict=True):
        assert type(got) is type(xp.asarray(r))
        np.testing.assert_allclose(to_numpy(got), wanted, rtol=1e-5)


def test_members_in_whole_graphs():
    """A layer with its gates is one graph of PyTorch for all lengths, with gradients of what the gates are of."""
    torch = pytest.importorskip("torch")
    torch.compiler.reset()
    graphs = []

    def counted(graph, given):
        graphs.append(graph)
        return graph

    x, u, w = map(torch.tensor, rows((2, 8, D), (2, D), (2, 8, D)))

    def layers(x, u, w):
        first = ka.gated_linear_attention(x, w, x, **ka.gates.kda(x, u[:, 0], u, w[..., 0]))[0]
        first = ka.gated_linear_attention(first, w, x, **ka.gates.delta_net(w[..., 0]))[0]
        given, bonus = ka.gates.rwkv6(x, ka.gates.hgrn2(torch.sigmoid(w))["gk"], first, w, u)
        return ka.gated_linear_attention(**given)[0][:, :-1] + bonus

    whole = torch.compile(layers, fullgraph=True, backend=counted, dynamic=True)
    for n in (8, 5):
        part = [y.clone().requires_grad_() for y in (x[:, :n], u, w[:, :n])]
        torch.testing.assert_close(whole(*part), layers(*part))
        slopes = (torch.autograd.grad(call(*part).square().sum(), part) for call in (whole, layers))
        torch.testing.assert_close(*slopes)
    assert len(graphs) == 1
    wrong = torch.compile(lambda x, u: ka.gates.kda(x, u[:, 0], u[:1, :3], x[..., 0]), backend="eager")
    with pytest.raises(ShapeError, match=r"dt_bias \(heads, d\)"):
        wrong(x, u)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ka.gates.gla(np.zeros((2, 2)), temperature=0), "temperature must be"),
        (
            lambda: ka.gates.softplus(np.zeros((2, 9)), np.zeros(3), np.zeros(2)),
            r"a_log \(heads,\)",
        ),
        (lambda: ka.gates.hgrn2(np.full((2, 2), 2.0)), "f must hold forget gates in"),
        (
            lambda: ka.gates.mamba2(*[np.ones((2, 3, 1)), np.ones((2, 3)), np.ones(2)], *2 * [np.ones((1, 3, 1))]),
            "a must",
        ),
        (lambda: ka.gates.delta_net(np.zeros(2), most=0), "most must be"),
        (
            lambda: ka.gates.kda(np.zeros((2, 9, 4)), np.zeros(2), np.zeros((3, 4)), np.zeros((2, 9))),
            r"dt_bias \(heads, d\); got \(2, 9, 4\) and \(3, 4\)",
        ),
        (lambda: ka.gates.rwkv6(*[np.zeros((2, 9, 4))] * 4, np.zeros((2, 3))), r"u \(heads, d\)"),
        (
            lambda: ka.gates.delta_product(np.zeros((8, 4)), *[np.zeros((9, 2, 4))] * 2, np.zeros((9, 2))),
            r"q must be \(..., 9, 4\) beside k \(9, 2, 4\); got shape \(8, 4\)",
        ),
        (
            lambda: ka.gates.delta_product(*[np.zeros((9, 4))] * 3, np.zeros((9, 2))),
            r"k must be \(..., n, h, d\)",
        ),
        (lambda: ka.gates.lightning(2, 3, 3, like=np.zeros(1)), "layer must be below num_layers = 3"),
        (lambda: ka.gates.rwkv7(*[np.full((9, 4), 0.9)] * 6), "w must be natural logarithms .* got 0.9; of a decay"),
        (lambda: ka.gates.rwkv6(*[np.full((2, 9, 4), 2.0)] * 4, np.zeros((2, 4))), "w must be natural .* got 2$"),
        (lambda: ka.gates.mamba2(ROWS, -ONES, -np.ones(2), ROWS, ROWS), "dt must hold steps of at least 0"),
        (
            lambda: ka.gates.mamba2(np.ones((6, 9, 3)), np.ones((6, 9)), -np.ones(6), ROWS, ROWS),
            r"2 groups of 3 of the 6 heads of x: give groups an axis, x \(..., 2, 3, n, e\)",
        ),
        (
            lambda: ka.gates.kda(np.zeros((2, 9, 4)), np.zeros(2), np.array(0.0), np.zeros((2, 9))),
            r"dt_bias \(heads, d\); got \(2, 9, 4\) and \(\)",
        ),
    ],
)
def test_refusals(call, says):
    with pytest.raises((ParameterError, ShapeError), match=says):
        call()


@pytest.mark.parametrize(
    ("member", "given", "says"),
    [
        ("retention", {"heads": 4}, "'heads': it takes num_heads, like"),
        ("mamba2", {"A": 1.0}, "'A': it takes x, dt, a, b, c"),
        ("delta_net", {"beta": 1.0}, "'beta': it takes b, most"),
    ],
)
def test_keywords_that_members_take_are_told(member, given, says):
    with pytest.raises(TypeError, match=says):
        getattr(ka.gates, member)(**given)


ROWS, VALUES, ONES = np.ones((2, 9, 4)), np.ones((2, 9, 3)), np.ones((2, 9))
MEMBERS = {
    "kda": {"a": ROWS, "a_log": np.ones(2), "dt_bias": np.ones((2, 4)), "b": ONES},
    "gdn2": {"k": ROWS, "v": VALUES, "gk": -ROWS, "erase": ROWS, "write": VALUES},
    "mamba2": {"x": VALUES, "dt": ONES, "a": -np.ones(2), "b": ROWS, "c": ROWS},
    "rwkv6": {"r": ROWS, "w": -ROWS, "k": ROWS, "v": VALUES, "u": np.ones((2, 4))},
    "rwkv7": {"r": ROWS, "w": -ROWS, "k": ROWS, "v": VALUES, "a": ROWS, "b": ROWS},
    "delta_product": {
        "q": ROWS,
        "k": np.ones((2, 9, 2, 4)),
        "v": np.ones((2, 9, 2, 3)),
        "beta": np.ones((2, 9, 2)),
        "g": -ONES,
    },
}


@pytest.mark.parametrize("member", MEMBERS)
def test_arguments_of_members_that_do_not_fit_are_named(member):
    given, call = MEMBERS[member], getattr(ka.gates, member)
    call(**given)
    for name, x in given.items():
        for wrong in (np.array(1.0), np.ones((*x.shape, 1)), x[..., :0], x.astype(object), x > 0):
            if name == "a_log" and wrong.ndim == 0:
                continue  # one number for all heads
            with pytest.raises(KernattnError, match=rf"\b{name}\b"):
                call(**given | {name: wrong})


@pytest.mark.parametrize("state", [None, GatedState(np.zeros((3, 2, 4, 3)))])
def test_a_step_tells_how_it_takes_constants(state):
    q, v, constants = np.ones((3, 2, 4)), np.ones((3, 2, 3)), ka.gates.retention(2, like=ROWS)["g"]
    with pytest.raises(KernattnError, match=r"a step takes constants .* g\[:, 0\]"):
        ka.gated_linear_attention_step(state, q, q, v, g=constants)
    ka.gated_linear_attention_step(state, q, q, v, g=constants[:, 0])
