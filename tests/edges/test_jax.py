"""Arrays of JAX: the compiled loops under jit, grad, vmap and scan, against NumPy's arrays, differences and loops."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn.errors import BackendUnavailable
from laws import arrays, close
from xp import to_numpy

jax = pytest.importorskip("jax")
pytest.importorskip("numba")
jnp, check_grads = jax.numpy, import_module("jax.test_util").check_grads
_calls, _frames = (import_module(f"kernattn.jax.{name}") for name in ("_calls", "_frames"))

D = maps.DIM
NAMES = ["positive-softmax", "trigonometric-softmax", "favor_sharp_asymmetric", "elu1"]
USUAL = [*NAMES[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def inputs(n=6, dtype="float64"):
    """q of grouped heads, k, v, what came before, a mask and segments."""
    q, k, v = arrays(1, (2, 3, n, D), (2, 1, n, D), (2, 1, n, 3), dtype=dtype, scale=0.7)
    past = arrays(2, (2, 1, 4, D), (2, 1, 4, 3), dtype=dtype, scale=0.7)
    mask, ids = np.arange(n) % 4 != 2, np.arange(n) * 3 // n
    return [jnp.asarray(x) for x in (q, k, v, *past)], jnp.asarray(mask), jnp.asarray(ids)


def every(phi, mask, ids, **options):
    """A function of arrays that calls all functions, which pass states on."""

    def run(q, k, v, past_k, past_v):
        state = ka.key_state(past_k, past_v, phi, key_mask=mask[:4], **options)
        out, state = ka.causal_linear_attention(
            q, k, v, phi, state=state, key_mask=mask, segment_ids=ids * 0, **options
        )
        packed, _ = ka.causal_linear_attention(q, k, v, phi, segment_ids=ids, **options)
        token = (x[..., -1, :] for x in (q, k, v))
        one, state = ka.linear_attention_step(state, *token, phi, **options)
        return [
            out, packed, one, ka.attend(state, q, phi, **options),
            ka.linear_attention(q, k, v, phi, key_mask=mask, **options),
            ka.softmax_attention(q, k, v, causal=True, key_mask=mask, **options),
        ]  # fmt: skip

    return run


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.usefixtures("x64")
def test_gradients_and_values(name):
    phi = maps.make(name)
    given, mask, ids = inputs()
    run = every(phi, mask, ids)
    wanted = every(phi, np.asarray(mask), np.asarray(ids))(*map(np.asarray, given))
    for traced, eager, each in zip(jax.jit(run)(*given), run(*given), wanted, strict=True):
        close(traced, each, 1e-12, f"{name}, traced")
        close(eager, each, 1e-12, f"{name}, at once")
    check_grads(jax.jit(lambda *x: [jnp.sin(y) for y in run(*x)]), given, order=1, modes=["rev"])
    rows = jax.jit(lambda x: jnp.sin(phi.query(x)) + jnp.sin(phi.key(x)))
    close(rows(given[0]), np.sin(phi.query(given[0])) + np.sin(phi.key(given[0])), 1e-12, "features")
    check_grads(rows, given[:1], order=1, modes=["rev"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scan_of_steps(dtype):
    phi = maps.make("positive-softmax")
    (q, k, v, *_), mask, _ = inputs(dtype=dtype)

    @jax.jit
    def decode(q, k, v, mask):
        def body(state, token):
            *token, there = token
            out, state = ka.linear_attention_step(state, *token, phi, key_mask=there)
            return state, out

        state = ka.initial_state(phi, (2, 1), 3, like=k)
        state, out = jax.lax.scan(body, state, (*(jnp.moveaxis(x, -2, 0) for x in (q, k, v)), mask))
        return jnp.moveaxis(out, 0, -2), state

    out, state = decode(q, k, v, mask)
    wanted, after = ka.causal_linear_attention(q, k, v, phi, key_mask=mask)
    assert out.dtype == q.dtype
    assert state.fingerprint == phi.fingerprint
    close(out, to_numpy(wanted), {"float32": 1e-5, "bfloat16": 0.03}[dtype], "outputs")
    close(ka.attend(state, q, phi), to_numpy(ka.attend(after, q, phi)), 0.03 if dtype == "bfloat16" else 1e-5, "state")


@pytest.mark.parametrize("way", ["frame", "buffers", "callback"])
def test_ways_of_a_step(way, monkeypatch):
    """By XLA's own interface, by a callback on its buffers, and by the public one: the same, and the state is kept."""
    if way != "frame":
        monkeypatch.setattr(_frames, "_is_known", lambda: False)
    if way == "callback":
        monkeypatch.setattr(_calls, "buffer_callback", None)
    phi = maps.make("trigonometric-softmax")
    (q, k, v, past_k, past_v), _, _ = inputs(dtype="float32")
    state = ka.key_state(past_k, past_v, phi)
    before = [np.array(x) for x in state[:3]]
    run = jax.jit(lambda state, *x: ka.linear_attention_step(state, *x, phi))
    token = [x[..., 0, :] for x in (q, k, v)]
    text = run.lower(state, *token).as_text()
    assert ("kernattn_step_float32" in text) is (way == "frame")
    assert ("xla_buffer_python" in text) is (way == "buffers")
    out, after = run(state, *token)
    wanted, last = ka.linear_attention_step(state, *token, phi)
    np.testing.assert_array_equal(out, wanted)
    for old, kept, new, other in zip(state[:3], before, after[:3], last[:3], strict=True):
        np.testing.assert_array_equal(old, kept)
        np.testing.assert_array_equal(new, other)


def test_the_interface_of_this_jax_is_known():
    from kernattn.ops.step import frame_loops

    assert _frames._version() == frame_loops.VERSION


@pytest.mark.usefixtures("x64")
def test_vmap_is_a_loop():
    """Over each argument, and over some of them; under grad and over it; twice."""
    phi = maps.make("positive-softmax")
    (q, k, v, past_k, past_v), mask, _ = inputs()
    masks = jnp.stack([mask, ~mask])

    def run(q, k, v, past_k, mask, scale):
        state = ka.key_state(past_k, past_v[0], phi)
        out, state = ka.causal_linear_attention(q, k, v, phi, state=state, key_mask=mask)
        one, state = ka.linear_attention_step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], phi)
        read = ka.attend(state, q, phi) + ka.linear_attention(q, k, v, phi, key_mask=mask)
        exact = ka.softmax_attention(q, k, v, scale=scale, key_mask=mask)
        return jnp.sum(jnp.sin(out)) + jnp.sum(one) + jnp.sum(read * exact)

    scales = jnp.asarray([0.3, 0.8])
    gradient = jax.jit(jax.grad(run, argnums=(0, 1, 2, 3, 5)))
    for mapped in [(0, 0, 0, 0, 0, 0), (0, None, None, None, 0, None)]:
        given = [x if at == 0 else x[0] for x, at in zip((q, k, v, past_k, masks, scales), mapped, strict=True)]
        found = jax.jit(jax.vmap(gradient, in_axes=mapped))(*given)
        total = jax.jit(jax.grad(lambda *x, mapped=mapped: jnp.sum(jax.vmap(run, in_axes=mapped)(*x)), argnums=0))(
            *given
        )
        for i in range(2):
            alone = [x[i] if at == 0 else x for x, at in zip(given, mapped, strict=True)]
            for x, y in zip(found, gradient(*alone), strict=True):
                close(x[i], to_numpy(y), 1e-12, f"{mapped}")
        close(total, to_numpy(found[0]), 1e-12, "over vmap")
    twice = jax.vmap(jax.vmap(lambda q, k, v: ka.linear_attention(q, k, v, phi), in_axes=(0, None, None)))
    close(twice(q, k[:, 0], v[:, 0]), to_numpy(ka.linear_attention(q, k, v, phi)), 1e-12, "twice")


@pytest.mark.usefixtures("x64")
def test_numbers_are_learnt():
    phi = drawn = maps.make("positive-softmax")
    (q, k, v, *_), mask, _ = inputs()
    names = {"omega": jnp.asarray(phi.spec.omega) + 0.1, "row_weights": jnp.asarray(phi.spec.row_weights) * 0.9}
    names["scale"] = jnp.asarray(0.3)

    def run(learn, backend=None):
        options, phi = {"backend": backend}, ka.with_numbers(drawn, **learn)
        state = ka.key_state(k, v, phi, key_mask=mask, **options)
        out, state = ka.causal_linear_attention(q, k, v, phi, state=state, **options)
        one, state = ka.linear_attention_step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], phi, **options)
        read, full = ka.attend(state, q, phi, **options), ka.linear_attention(q, k, v, phi, **options)
        return jnp.sum(jnp.sin(out + read + full + one[..., None, :])) + jnp.sum(phi(q, **options) ** 2)

    check_grads(jax.jit(run), (names,), order=1, modes=["rev"])

    def read(learn, backend=None):
        phi = ka.with_numbers(drawn, **learn)
        state = ka.key_state(k[0], v[0], phi, backend=backend)
        return jnp.sum(ka.attend(state, q[0], phi, backend=backend) ** 2)

    found, other = (jax.jit(jax.value_and_grad(read), static_argnums=1)(names, way) for way in (None, "reference"))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True):
        close(x, to_numpy(y), 1e-10 * float(jnp.max(jnp.abs(y))), "the reference")
    many = jax.tree.map(lambda x: jnp.stack([x, 0.9 * x]), names)
    each, gradient = jax.jit(jax.vmap(jax.grad(read)))(many), jax.jit(jax.grad(read))
    for i in range(2):
        alone = gradient(jax.tree.map(lambda x, i=i: x[i], many))
        for x, y in zip(jax.tree.leaves(each), jax.tree.leaves(alone), strict=True):
            close(x[i], to_numpy(y), 1e-10 * float(jnp.max(jnp.abs(y))), "vmap over numbers")
    ard = maps.make("positive-ard")
    check_grads(
        jax.jit(lambda x: jnp.sin(ka.linear_attention(q, k, v, ka.with_numbers(ard, lengthscale=x)))),
        (jnp.asarray(ard.kernel.lengthscale),), order=1, modes=["rev"],
    )  # fmt: skip


@pytest.mark.usefixtures("x64")
def test_second_derivatives():
    q, k, v = (x[0, 0] for x in inputs(3)[0][:3])
    phi = ka.features.elu1()
    with pytest.raises(ka.errors.BackendUnavailable, match="backend='reference'"):
        jax.hessian(lambda q: jnp.sum(ka.linear_attention(q, k, v, phi)))(q)
    with pytest.raises(ka.errors.BackendUnavailable, match="backend='reference'"):
        jax.grad(lambda q: jnp.sum(jax.grad(lambda q: jnp.sum(ka.attend(ka.key_state(k, v, phi), q, phi)))(q)))(q)
    state = ka.key_state(k, v, phi)
    check_grads(jax.jit(lambda q: ka.attend(state, q, phi, backend="reference")), (q[:1],), order=2, modes=["rev"])


def test_what_is_unseen_may_be_nan():
    phi = maps.make("positive-softmax")
    (q, k, v, *_), mask, _ = inputs(dtype="float32")
    q, k, v = q[..., :3, :], jnp.where(mask[:, None], k, jnp.nan), jnp.where(mask[:, None], v, jnp.nan)

    @jax.jit
    @jax.value_and_grad
    def loss(given):
        q, k, v = given
        state = ka.key_state(k, v, phi, key_mask=mask)
        out, _ = ka.causal_linear_attention(k, k, v, phi, key_mask=mask)
        seen = jnp.where(mask[:, None], out, 0)
        exact = ka.softmax_attention(q, k, v, key_mask=mask)
        return jnp.sum(ka.attend(state, q, phi)) + jnp.sum(seen) + jnp.sum(exact)

    value, gradients = loss((q, k, v))
    assert np.isfinite(value)
    for gradient in gradients:
        assert np.isfinite(gradient).all()
    for gradient in gradients[1:]:
        assert not np.asarray(gradient)[..., ~np.asarray(mask), :].any()


def test_a_state_is_a_tree_that_knows_its_draw():
    phi = maps.make("positive-softmax")
    (q, k, v, *_), _, _ = inputs(dtype="float32")
    state = jax.jit(lambda k, v: ka.key_state(k, v, phi))(k, v)
    leaves, tree = jax.tree.flatten(state)
    assert len(leaves) == 3
    assert jax.tree.unflatten(tree, leaves).fingerprint == phi.fingerprint
    assert [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)] == [
        ".s", ".z", ".peak"
    ]  # fmt: skip
    with pytest.raises(ka.errors.StateMismatchError):
        jax.jit(lambda state, q: ka.attend(state, q, phi.redraw(9)))(state, q)
    assert jax.jit(ka.merge_states)(state, state).fingerprint == phi.fingerprint


def test_threads_of_python_of_xla_and_of_the_loops(monkeypatch):
    """Several programs at once, each with calls that XLA may run side by side, which share their loops."""
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "3")
    phi = ka.features.elu1()
    x = jnp.asarray(arrays(3, (8, 1500, 32))[0])

    @jax.jit
    def run(x):
        parts = [ka.causal_linear_attention(x + i, x, x, phi)[0] for i in range(3)]
        token = ka.linear_attention_step(ka.key_state(x, x, phi), *(x[:, i] for i in range(3)), phi)[0]
        return sum(jnp.sum(part) for part in parts) + jnp.sum(token)

    wanted = run(x)
    with ThreadPoolExecutor(4) as pool:
        for found in [pool.submit(run, x) for _ in range(12)]:
            close(found.result(), to_numpy(wanted), 1e-3 * abs(float(wanted)), "threads")


def test_a_step_of_training():
    """Associative recall: which value stood beside this key? Uniform attention cannot say; learnt features say best."""
    dim, n, names, values = 8, 8, 16, 6
    phi = ka.random_features(ka.kernels.Softmax(), dim, 16, rng=0)
    rng = np.random.default_rng(0)
    vectors = jnp.asarray(rng.standard_normal((names, dim)), jnp.float32)

    def problem(size):
        keys = np.argsort(rng.random((size, names)), axis=-1)[:, :n]
        given, asked = rng.integers(values, size=(size, n)), rng.integers(n, size=size)
        at = np.arange(size), asked
        return [jnp.asarray(x) for x in (keys, given, keys[at], given[at])]

    def loss(weights, problem, learns):
        keys, given, asked, wanted = problem
        k, q, v = vectors[keys] @ weights["k"], vectors[asked][:, None] @ weights["q"], jax.nn.one_hot(given, values)
        chosen = ka.with_numbers(phi, omega=weights["omega"]) if learns else phi
        out = ka.linear_attention(q, k, v, chosen)[:, 0]
        return -jnp.mean(jnp.log(out[jnp.arange(len(wanted)), wanted] + 1e-3))

    def trained(learns, problems):
        @jax.jit
        def step(weights, slope, size, problem):
            gradient = jax.grad(loss)(weights, problem, learns)
            slope = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, slope, gradient)
            size = jax.tree.map(lambda s, g: 0.9 * s + 0.1 * g * g, size, gradient)
            weights = jax.tree.map(lambda w, m, s: w - 0.05 * m / (jnp.sqrt(s) + 1e-6), weights, slope, size)
            return weights, slope, size

        weights = {"k": jnp.eye(dim), "q": jnp.eye(dim), "omega": jnp.asarray(phi.spec.omega, jnp.float32)}
        slope = size = jax.tree.map(jnp.zeros_like, weights)
        for problem in problems:
            weights, slope, size = step(weights, slope, size, problem)
        return weights

    problems, test = [problem(32) for _ in range(100)], problem(512)
    fixed, learnt = (float(loss(trained(learns, problems), test, learns)) for learns in (False, True))
    shares = jnp.mean(jax.nn.one_hot(test[1], values), axis=1)[jnp.arange(512), test[3]]
    uniform = float(-jnp.mean(jnp.log(shares + 1e-3)))
    assert fixed < 0.7 * uniform
    assert learnt < 0.8 * fixed


def test_a_map_with_a_kernel_number_serves_calls_inside_and_outside_of_jit():
    phi = maps.make("positive-softmax")
    learnt = ka.with_numbers(phi, scale=jnp.asarray(0.5))
    (q, k, v, *_), *_ = inputs(dtype="float32")
    compiled = jax.jit(lambda q: ka.linear_attention(q, k, v, learnt))(q)
    close(to_numpy(compiled), to_numpy(ka.linear_attention(q, k, v, learnt)), 1e-6, "outside")


def test_refusals(monkeypatch):
    (q, k, v, *_), _, _ = inputs(dtype="float32")
    phi, computed = maps.make("positive-softmax"), maps.make("polynomial")
    with pytest.raises(ka.errors.MixedLibraryError, match=r"k of numpy"):
        ka.linear_attention(q, np.asarray(k), v, phi)
    with pytest.raises(ka.errors.BackendUnavailable, match="gpu"):
        ka.linear_attention(q, k, v, phi, backend="gpu")
    with pytest.raises(ka.errors.ParameterError, match="backend must be None or one of"):
        ka.linear_attention(q, k, v, phi, backend="tpu")
    with pytest.raises(ka.errors.BackendUnavailable, match="being traced; backend='reference' takes it"):
        jax.jit(lambda q: ka.linear_attention(q, k, v, computed, backend="cpu"))(q)
    close(
        jax.jit(lambda *x: ka.linear_attention(*x, computed))(q, k, v),
        ka.linear_attention(*map(np.asarray, (q, k, v)), computed),
        1e-5,
        "polynomial",
    )
    with pytest.raises(ka.errors.ParameterError, match=r"offset needs a map"):
        ka.with_numbers(ka.features.elu1(), offset=q)
    with pytest.raises(ka.errors.ShapeError, match=r"omega must have shape"):
        ka.with_numbers(phi, omega=q)
    with pytest.raises(ka.errors.MixedLibraryError):
        ka.linear_attention(
            np.asarray(q), np.asarray(k), np.asarray(v), ka.with_numbers(phi, omega=jnp.asarray(phi.spec.omega))
        )
    with pytest.raises(ka.errors.ShapeError, match="scale must be a number"):
        ka.softmax_attention(q, k, v, scale=q)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(ka.errors.BackendUnavailable, match="being traced"):
        jax.jit(lambda q: ka.linear_attention(q, k, v, phi, backend="cpu"))(q)
    text = jax.jit(lambda q: ka.linear_attention(q, k, v, ka.features.elu1())).lower(q).as_text()
    assert "callback" not in text


def test_a_state_is_a_tree_from_the_first_call():
    run = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False)
    assert run.stdout == "(3, 1)\n", run.stderr


FIRST = """
import jax, jax.numpy as jnp
import kernattn as ka
phi, x = ka.features.elu1(), jnp.zeros((3, 2))
state = ka.initial_state(phi, (), value_dim=1, like=x[0])
step = lambda state, x: ka.linear_attention_step(state, x, x, x[:1], phi)[::-1]
print(jax.jit(lambda state, x: jax.lax.scan(step, state, x))(state, x)[1].shape)
"""


def test_old_names_work_and_warn():
    (q, k, v, *_), _, _ = inputs(dtype="float32")
    phi, old = maps.make("positive-softmax"), import_module("kernattn.jax")
    numbers = {"omega": jnp.asarray(phi.spec.omega, jnp.float32)}
    with pytest.warns(DeprecationWarning, match=r"kernattn\.linear_attention"):
        found = old.linear_attention(q, k, v, phi, learn=numbers)
    close(found, to_numpy(ka.linear_attention(q, k, v, ka.with_numbers(phi, **numbers))), 1e-6, "linear")
    with pytest.warns(DeprecationWarning, match=r"phi\.key"):
        close(old.features(k, phi, keys=True), to_numpy(phi.key(k)), 1e-6, "features")
    halved = {"omega": numbers["omega"] / 2}  # learnt of a map by keyword as well
    with pytest.warns(DeprecationWarning, match=r"kernattn\.linear_attention") as warnings:
        found = old.linear_attention(q, k, v, phi=phi, learn=halved)
    close(found, to_numpy(ka.linear_attention(q, k, v, ka.with_numbers(phi, **halved))), 1e-6, "linear")
    assert warnings[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="phi"):
        close(old.features(x=q, phi=phi), to_numpy(phi(q)), 1e-6, "features")


def test_without_jax():
    without = "import sys; sys.modules['jax'] = None; import kernattn.jax"
    run = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    words = "MissingExtra: JAX is not installed and is needed for kernattn.jax: pip install 'kernattn[jax]'"
    assert words in run.stderr


@pytest.mark.parametrize("mode", ["jvp", "jacfwd"])
def test_forward_mode_is_refused_by_its_name(mode):
    x, phi = jnp.ones((3, D)), ka.features.elu1()
    ways = {"jvp": lambda f: jax.jvp(f, (x,), (x,)), "jacfwd": lambda f: jax.jacfwd(f)(x)}
    for call in (lambda x: ka.softmax_attention(x, x, x), lambda x: ka.linear_attention(x, x, x, phi)):
        with pytest.raises(BackendUnavailable, match=r"forward mode \(jvp, jacfwd\): backend='reference' has them"):
            ways[mode](call)
