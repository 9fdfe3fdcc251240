"""Experts: against the formula row by row, in training, in files; what they refuse."""

from dataclasses import replace

import numpy as np
import pytest

from kernattn import errors
from kernattn.transformer import Config, Experts, forward, initial_params, load_params, save_params, shapes

SIZES = {"num_experts": 5, "num_chosen": 2, "hidden": 6}
CONFIG = Config(
    dim=8, layers=1, heads=2, inputs=8, output=None, positions=None, bias=False, norm_first=False,
    experts=Experts(**SIZES, shared=3),
)  # fmt: skip


def drawn(config):
    return {name: 2 * value for name, value in initial_params(config, 0, "float64").items()}


def rows(*shape):
    return np.random.default_rng(0).standard_normal((*shape, 8))


def by_hand(params, experts, x):
    """Return what the experts add to a row."""
    of = {name.removeprefix("layers.0.feed_forward."): value for name, value in params.items()}

    def swiglu(gate, up, down):
        z = x @ gate
        return (z / (1 + np.exp(-z)) * (x @ up)) @ down

    p = np.exp(x @ of["router.weight"])
    p /= p.sum()
    top = sorted(range(experts.num_experts), key=lambda i: -p[i])[: experts.num_chosen]
    total = sum(p[i] for i in top) if experts.normalise else 1
    out = sum(p[i] / total * swiglu(*(of[f"experts.{part}"][i] for part in ("gate", "up", "down"))) for i in top)
    if experts.shared:
        shared = swiglu(*(of[f"shared.{part}.weight"] for part in ("gate", "up", "down")))
        out = out + shared / (1 + np.exp(-x @ of["shared.weight"]))
    return out


@pytest.mark.parametrize("shared", [0, 3])
@pytest.mark.parametrize(("chosen", "normalise"), [(1, True), (2, True), (2, False), (5, False)])
def test_rows_are_those_of_the_formula(chosen, normalise, shared):
    experts = Experts(**{**SIZES, "num_chosen": chosen}, shared=shared, normalise=normalise)
    config = replace(CONFIG, experts=experts, norm="rms")
    params, x = drawn(config), rows(2, 7)
    assert list(params) == list(shapes(config))
    before = replace(config, experts=None, hidden=0)  # what the experts get
    given = forward({name: params[name] for name in shapes(before)}, before, x)
    sums = given + np.stack([[by_hand(params, experts, row) for row in part] for part in given])
    scale = params["layers.0.feed_forward.norm.scale"]
    wanted = sums / np.sqrt(np.mean(sums**2, axis=-1, keepdims=True) + config.eps) * scale
    np.testing.assert_allclose(forward(params, config, x), wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "array_api_strict"])
def test_arrays_of_other_libraries(library):
    xp = pytest.importorskip(library)
    config = replace(CONFIG, activation="relu")
    params, x = {name: value.astype(np.float32) for name, value in drawn(config).items()}, rows(2, 5).astype(np.float32)
    found = forward({name: xp.asarray(value) for name, value in params.items()}, config, xp.asarray(x))
    assert type(found) is type(xp.asarray(x))
    np.testing.assert_allclose(np.asarray(found), forward(params, config, x), rtol=2e-5, atol=2e-5)


def test_training():
    """Against differences along a direction: rows come back to their places, and weights of p get a gradient."""
    torch = pytest.importorskip("torch")
    values, x, rng = drawn(CONFIG), rows(3, 6), np.random.default_rng(1)
    weigh = rng.standard_normal((3, 6, 8))
    params = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    (forward(params, CONFIG, torch.tensor(x)) * torch.tensor(weigh)).sum().backward()
    for name, value in values.items():
        along = rng.standard_normal(value.shape)
        ahead, behind = (
            np.sum(forward({**values, name: value + by * along}, CONFIG, x) * weigh) for by in (1e-6, -1e-6)
        )
        slope = np.sum(params[name].grad.numpy() * along)
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-5, err_msg=name)


def test_files_keep_experts(tmp_path):
    config = replace(CONFIG, layers=2, experts=(None, CONFIG.experts))
    params = drawn(config)
    save_params(params, config, tmp_path / "model.npz")
    found, same = load_params(tmp_path / "model.npz")
    assert same == config
    np.testing.assert_array_equal(forward(found, same, rows(4)), forward(params, config, rows(4)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_experts": 0}, "num_experts must be a positive integer"),
        ({"num_chosen": 6}, "num_chosen must be 5 at most; got 6"),
        ({"shared": -1}, "shared must be a non-negative integer"),
        ({"normalise": 1}, "normalise must be"),
    ],
    ids=str,
)
def test_experts_that_are_refused(change, message):
    with pytest.raises(errors.ParameterError, match=message):
        Experts(**{**SIZES, **change})


def test_where_experts_do_not_go():
    with pytest.raises(errors.DTypeError, match="experts must be"):
        replace(CONFIG, experts=5)
