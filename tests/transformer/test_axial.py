"""The axial decoder: a pixel sees exactly the earlier ones in raster order."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.transformer import Config, axial_decoder, axial_params, axial_shapes

GRID = 3, 4
CONFIG = Config(dim=8, layers=2, heads=2, vocab=5, positions="axial", grid=GRID)


def drawn(outer, config=CONFIG):
    rng = np.random.default_rng(1)
    params = axial_params(config, outer, 0, "float64")
    return {name: value + 0.2 * rng.standard_normal(value.shape) for name, value in params.items()}


@pytest.mark.parametrize("attention", [None, ka.features.elu1()], ids=["exact", "elu1"])
@pytest.mark.parametrize("outer", [0, 1, 2])
def test_a_pixel_sees_exactly_the_earlier_ones(outer, attention):
    params, x = drawn(outer), np.random.default_rng(0).integers(5, size=GRID)
    out = axial_decoder(params, CONFIG, x, attention=attention).reshape(12, 5)
    for j in range(12):
        other = x.copy().reshape(-1)
        other[j] = (other[j] + 1) % 5
        moved = axial_decoder(params, CONFIG, other.reshape(GRID), attention=attention).reshape(12, 5)
        seen = np.abs(moved - out).max(axis=-1) > 1e-12
        row = np.arange(12) // 4 == j // 4
        np.testing.assert_array_equal(seen, (np.arange(12) > j) & (row | (outer > 0)))


@pytest.mark.parametrize("outer", [0, 1])
def test_what_the_layers_get(outer):
    """Of layers that add nothing: h = ShiftRight(e) + pos + ShiftDown(e + pos), the last part with outer layers."""
    params, x = drawn(outer), np.random.default_rng(0).integers(5, size=GRID)
    for name, value in params.items():
        if ".out." in name or ".down." in name:
            value[:] = 0
    where = params["embed.positions.0"][:, None] + params["embed.positions.1"]
    seen = params["embed.tokens"][x]
    h = where.copy()
    h[:, 1:] += seen[:, :-1]
    if outer:
        h[1:] += (seen + where)[:-1]
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + CONFIG.eps)
    logits = (h * params["norm.scale"] + params["norm.bias"]) @ params["output.weight"] + params["output.bias"]
    np.testing.assert_allclose(axial_decoder(params, CONFIG, x), logits, rtol=1e-10, atol=1e-12)


def test_every_parameter_counts_and_batches_are_apart():
    params, x = drawn(1), np.random.default_rng(0).integers(5, size=(2, *GRID))
    assert list(params) == list(axial_shapes(CONFIG, 1))
    out = axial_decoder(params, CONFIG, x)
    np.testing.assert_allclose(out[1], axial_decoder(params, CONFIG, x[1]), rtol=1e-12)
    for name, value in params.items():
        if not name.endswith("k.bias"):  # which softmax does not see
            other = {**params, name: value + 0.1 * np.random.default_rng(9).random(value.shape)}
            assert np.abs(axial_decoder(other, CONFIG, x) - out).max() > 1e-6, name


def test_what_is_refused():
    params, x = drawn(1), np.zeros(GRID, int)
    for config, images, message in (
        (Config(dim=8, layers=1, heads=2, vocab=5, length=12), x, "a grid"),
        (CONFIG, x.T, r"must be \(\.\.\., 3, 4\)"),
        (CONFIG, x + 5, "integers from 0 to 4"),
        (CONFIG, x + 0.5, "must be integers"),
    ):
        with pytest.raises(errors.KernattnError, match=message):
            axial_decoder(params, config, images)
    with pytest.raises(errors.ParameterError, match=r"they lack outer\.0\.columns"):
        axial_decoder({name: params[name] for name in params if "columns" not in name}, CONFIG, x)
