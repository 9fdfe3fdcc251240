"""The evidence and predictions as functions: cotangents against differences in float64, in every framework."""

import numpy as np
import pytest

import kernattn as ka
from kernattn._arrays.trees import leaves, map_leaves
from kernattn.errors import BackendUnavailable, MixedLibraryError, ParameterError, ShapeError
from kernattn.features._lengthscales import lengthscales_of
from kernattn.solvers import _gp_evidence
from kernattn.solvers._tune import differentiate_evidence

K = ka.kernels
RNG = np.random.default_rng(3)
X, NEW = RNG.uniform(-1, 1, (18, 2)), RNG.uniform(-1, 1, (3, 2))
Y = np.stack([np.sin(3 * X[:, 0]), X[:, 1]], axis=1)
SCALES = {"noise": np.array([0.2, 0.3]), "amplitude": np.array(1.2)}
MIXED = K.Matern(2.5, 0.8) * K.RationalQuadratic(1.5, [2.0, 3.0]) + 2 * K.Gaussian(1.0)
BOX = [[-1.5, 1.5]] * 2


def basis(kernel):
    return ka.features.hilbert(kernel, BOX, (3, 4), boundary=1.3)


RANDOM = ka.random_features(K.Gaussian([0.5, 0.9]), 2, 8, "trigonometric", rng=0)
MAPS = {
    "random": RANDOM,
    "nystrom": ka.features.nystrom(X, MIXED, 10, rng=0),
    "cauchy": basis(K.Cauchy([0.7, 1.0])),
    "laplacian": basis(K.Laplacian(0.7)),
    "sech": basis(K.Sech(0.6)),
    "hilbert of a sum": basis(K.Matern(1.5, 0.8) * K.Gaussian([2.0, 3.0]) + 2 * K.Gaussian()),
    "product": basis(K.Matern(1.5, 0.6)) * (3 * ka.random_features(K.Gaussian(), 2, 4, "trigonometric", rng=1)),
    "sum": 3 * ka.features.nystrom(X, K.Gaussian([0.5, 0.8]), 8, rng=0) + RANDOM + basis(K.RationalQuadratic(2.0)),
}


def put(tree, at, value):
    """Lengthscales with another leaf."""
    places = iter(range(len(leaves(tree))))
    return map_leaves(lambda leaf: value if next(places) == at else leaf, tree)


@pytest.mark.parametrize("name", list(MAPS))
@pytest.mark.parametrize("function", [ka.solvers.log_evidence, ka.solvers.predict], ids=["evidence", "predictions"])
def test_cotangents_are_slopes(function, name):
    phi = MAPS[name]
    arrays = {"x": X, "y": Y, **SCALES, "lengthscale": lengthscales_of(phi)}
    if function is ka.solvers.predict:
        arrays["new"] = NEW

    def parts(out):
        return tuple(out) if function is ka.solvers.predict else (out,)

    out, pullback = ka.vjp(function, phi=phi, **arrays)
    g = tuple(RNG.standard_normal(part.shape) for part in parts(out))
    found = pullback(g if function is ka.solvers.predict else g[0])

    def value(**other):
        return sum(np.sum(a * b) for a, b in zip(g, parts(function(phi=phi, **arrays | other)), strict=True))

    def check(got, number, of):
        """The slope along one direction."""
        by, h = RNG.standard_normal(np.shape(number)), 1e-5
        wanted = (of(number + h * by) - of(number - h * by)) / (2 * h)
        np.testing.assert_allclose(np.sum(got * by), wanted, rtol=1e-5, atol=1e-7)

    numbers = arrays["lengthscale"]
    for key in set(arrays) - {"lengthscale"}:
        check(getattr(found, key), arrays[key], lambda each, key=key: value(**{key: each}))
    for i, (leaf, got) in enumerate(zip(leaves(numbers), leaves(found.lengthscale), strict=True)):
        check(got, leaf, lambda each, i=i: value(lengthscale=put(numbers, i, each)))


@pytest.mark.parametrize("of", ["one target", "two", "one of zeros"])
def test_a_factor_and_eigenvectors_agree(of, monkeypatch):
    """One penalty is taken by a factor; its value, its cotangents and tune's slopes are those of eigenvectors."""
    y = {"one target": Y[:, 0], "two": Y, "one of zeros": Y * [1.0, 0.0]}[of]
    given = {"noise": 0.2, "amplitude": 1.2, "lengthscale": np.array([0.4, 1.1])}
    found = []
    for resolved in (_gp_evidence.RESOLVED, np.inf):
        monkeypatch.setattr(_gp_evidence, "RESOLVED", resolved)
        value, pullback = ka.vjp(ka.solvers.log_evidence, x=X, y=y, phi=RANDOM, **given)
        slopes = differentiate_evidence(ka.solvers.moments(X, RANDOM, y=Y[:, 0]))
        again = pullback(np.full_like(value, 2.0)), pullback(np.ones_like(value))
        found.append((value, *again[0], *again[1], slopes.gram, slopes.cross))
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_penalties_that_a_factor_does_not_resolve_are_left_to_eigenvectors():
    gram = np.diag([1.0, 0.0])
    assert _gp_evidence.factor(gram, 2.0**-40) is not None
    assert _gp_evidence.factor(gram, 2.0**-41) is None
    for size in (0.0, 1e-250, 1e250):
        assert _gp_evidence.factor(size * gram, size) is None
    with pytest.raises(ParameterError, match=r"noise must be .* times the amplitude or more"):
        ka.solvers.log_evidence(X, Y, RANDOM, noise=1e-9, amplitude=1.0)


def test_values_are_those_of_a_process():
    phi = ka.features.nystrom(X, K.Matern(2.5, 0.8), 10, rng=0)
    process = ka.solvers.gp(ka.solvers.moments(X, phi, y=Y), **SCALES)
    np.testing.assert_array_equal(ka.solvers.log_evidence(X, Y, phi, **SCALES), process.log_evidence)
    found = ka.solvers.predict(X, Y, NEW[None], phi, **SCALES)
    np.testing.assert_allclose(found.mean[0], process.mean(NEW), rtol=1e-12)
    np.testing.assert_allclose(found.variance[0], process.variance(NEW), rtol=1e-12)
    other = ka.features.nystrom(X, K.Matern(2.5, 1.1), 10, rng=0)
    longer = ka.solvers.log_evidence(X, Y, phi, **SCALES, lengthscale=1.1)
    np.testing.assert_array_equal(other.indices, phi.indices)  # of uniform landmarks, by the seed alone
    np.testing.assert_allclose(longer, ka.solvers.log_evidence(X, Y, other, **SCALES), rtol=1e-9)


PHI = ka.features.nystrom(X, K.Matern(2.5, 0.8), 8, rng=0) * RANDOM
GIVEN = X, Y[:, 0], np.array(0.2), np.array(1.2), np.array(0.8), np.array([0.5, 0.9])


def evidence(x, y, noise, amplitude, one, other):
    return ka.solvers.log_evidence(x, y, PHI, noise=noise, amplitude=amplitude, lengthscale=(one, other))


def pulled():
    given = {"noise": GIVEN[2], "amplitude": GIVEN[3], "lengthscale": GIVEN[4:]}
    value, pullback = ka.vjp(ka.solvers.log_evidence, *GIVEN[:2], PHI, **given)
    found = pullback(np.ones_like(value))
    return value, (*found[:4], *found.lengthscale)


@pytest.mark.filterwarnings("ignore:__array_wrap__", "ignore:.torch.jit.script:DeprecationWarning")  # of jacfwd itself
def test_pytorch_differentiates_them():
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(x, requires_grad=True) for x in GIVEN]
    assert torch.autograd.gradcheck(evidence, tensors, fast_mode=True)

    def predictions(x, y, noise, amplitude, one, other):
        return tuple(ka.solvers.predict(x, y, x[:2], PHI, noise=noise, amplitude=amplitude, lengthscale=(one, other)))

    assert torch.autograd.gradcheck(predictions, tensors, fast_mode=True)
    value, wanted = pulled()
    plain = [x.detach() for x in tensors]
    assert abs(float(evidence(*plain)) - value) < 1e-12
    for got, one in zip(torch.func.grad(evidence, tuple(range(6)))(*plain), wanted, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-12)

    def of_one(number):
        return evidence(*plain[:4], number, plain[5])

    many = torch.tensor([0.7, 0.8], dtype=torch.float64)
    np.testing.assert_allclose(torch.func.vmap(of_one)(many)[1], value, rtol=1e-12)
    np.testing.assert_allclose(torch.func.vmap(torch.func.grad(of_one))(many)[1], wanted[4], rtol=1e-12)
    jacobian = torch.autograd.functional.jacobian(lambda x: predictions(x, *plain[1:])[0], plain[0], vectorize=True)
    slow = torch.autograd.functional.jacobian(lambda x: predictions(x, *plain[1:])[0], plain[0])
    np.testing.assert_allclose(jacobian, slow, rtol=1e-9, atol=1e-12)
    for again in (torch.func.grad(torch.func.grad(of_one)), torch.func.jacfwd(of_one)):
        with pytest.raises(NotImplementedError, match="on the host has first derivatives in reverse mode alone"):
            again(many[0])
    assert ka.solvers.predict(*(x.float() for x in plain[:2]), plain[0].float(), PHI, noise=0.2, amplitude=1.0)[
        0
    ].dtype is (torch.float32)
    with pytest.raises(MixedLibraryError):
        evidence(*plain[:2], *GIVEN[2:])


@pytest.mark.filterwarnings("ignore:__array_wrap__", "ignore:The .grad attribute:UserWarning")  # of PyTorch's own
def test_graphs_end_before_them():
    """And nothing of what they compute is traced."""
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(x, requires_grad=True) for x in GIVEN]
    graphs = []

    def backend(graph, examples):
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    def outputs(x, *more):
        given = {"noise": more[1], "amplitude": more[2], "lengthscale": more[3:]}
        value = ka.solvers.log_evidence(2 * x, more[0], PHI, **given)
        return 2 * value + ka.solvers.predict(2 * x, more[0], x, PHI, **given).mean.sum()

    value = torch.compile(outputs, backend=backend)(*tensors)
    assert sum(map(len, graphs)) <= 5, graphs  # 2 x, twice, 2 value, the sum, the sum of both
    for got, wanted in zip(
        torch.autograd.grad(value, tensors), torch.autograd.grad(outputs(*tensors), tensors), strict=True
    ):
        torch.testing.assert_close(got, wanted)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="computes on the host"):
        torch.compile(evidence, backend="eager", fullgraph=True)(*tensors)


def test_jax_differentiates_them():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        given = [jax.numpy.asarray(x) for x in GIVEN]
        value, wanted = pulled()
        found = jax.jit(jax.value_and_grad(evidence, tuple(range(6))))(*given)
        assert abs(float(found[0]) - value) < 1e-12
        for got, one in zip(found[1], wanted, strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-12)

        def of_one(number):
            return evidence(*given[:4], number, given[5])

        many = jax.numpy.asarray([0.7, 0.8])
        np.testing.assert_allclose(jax.vmap(jax.grad(of_one))(many)[1], wanted[4], rtol=1e-12)
        np.testing.assert_allclose(of_one(many[1]), value, rtol=1e-12)
        for again in (jax.grad(jax.grad(of_one)), jax.jacfwd(of_one)):
            with pytest.raises(BackendUnavailable, match="on the host has first derivatives in reverse mode alone"):
                again(many[0])
    with jax.enable_x64(False):
        single = [jax.numpy.asarray(x) for x in GIVEN]
        for differentiate in (jax.value_and_grad(evidence, 4), jax.jit(jax.value_and_grad(evidence, 4))):
            found = differentiate(*single)
            assert found[0].dtype == found[1].dtype == np.float32
            np.testing.assert_allclose(found[0], value, rtol=1e-4)
            np.testing.assert_allclose(found[1], wanted[4], rtol=1e-3)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_frameworks_differentiate_draws(library):
    """On landmarks, at the data and of a product; once by the framework, and by the pullback."""
    framework = pytest.importorskip(library)
    column = Y[:, 0]
    nystrom = ka.features.nystrom(X, K.Matern(2.5, 0.8), 8, rng=0)
    for phi, data in ((nystrom, None), (nystrom, (X, column)), (PHI, None), (basis(K.Matern(1.5, 0.6)), None)):
        process = ka.solvers.gp(ka.solvers.moments(X, phi, y=column), noise=0.3, amplitude=1.0)
        draws = process.draw(2, prior=RANDOM if phi is nystrom else None, data=data, rng=0)
        out, pullback = ka.vjp(draws, NEW)
        g = RNG.standard_normal(out.shape)
        wanted = pullback(g).x
        if library == "torch":
            x = framework.tensor(NEW, requires_grad=True)
            (draws(x) * framework.tensor(g)).sum().backward()
            np.testing.assert_allclose(x.grad, wanted, rtol=1e-9, atol=1e-12)
        else:
            with framework.enable_x64(True):
                run = framework.jit(framework.grad(lambda x, g=g, draws=draws: (draws(x) * g).sum()))
                np.testing.assert_allclose(run(framework.numpy.asarray(NEW)), wanted, rtol=1e-9, atol=1e-12)


def test_refusals():
    call = ka.solvers.log_evidence
    with pytest.raises(ShapeError, match=r"noise must be one number or one for each of 2 targets"):
        call(X, Y, RANDOM, noise=np.ones(3), amplitude=1.0)
    with pytest.raises(
        ShapeError,
        match=r"lengthscale must have shape \(2,\).*: a map of ka.kernels.Gaussian",
    ):
        call(X, Y, RANDOM, noise=0.1, amplitude=1.0, lengthscale=0.5)
    with pytest.raises(ParameterError, match="lengthscale must be a tuple of those of 2 members"):
        call(X, Y, PHI, noise=0.1, amplitude=1.0, lengthscale=0.5)
    with pytest.raises(ParameterError, match="lengthscale must be None for a map without one"):
        call(X, Y, ka.features.elu1(), noise=0.1, amplitude=1.0, lengthscale=0.5)
    with pytest.raises(ParameterError, match=r"noise must be positive, .*; got -0\.1"):
        call(X, Y, RANDOM, noise=-0.1, amplitude=1.0)
    for wrong in (None, [None], np.array(None), ["0.1"], np.array("0.1"), True):  # None is no NaN
        with pytest.raises(ParameterError, match="noise must be numbers"):
            call(X, Y, RANDOM, noise=wrong, amplitude=1.0)
    with pytest.raises(TypeError, match=r"log_evidence\(\) missing a required argument: 'amplitude'"):
        ka.vjp(call, X, Y, RANDOM, noise=0.1)
    with pytest.raises(ShapeError, match="new must have d = 2"):
        ka.solvers.predict(X, Y, np.ones((2, 3)), RANDOM, noise=0.1, amplitude=1.0)
    _, pullback = ka.vjp(ka.solvers.predict, X, Y, NEW, RANDOM, noise=0.1, amplitude=1.0)
    with pytest.raises(ParameterError, match="a pair, of mean and variance"):
        pullback(np.ones(3))
