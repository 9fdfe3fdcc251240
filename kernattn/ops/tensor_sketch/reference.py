"""Tensor sketches in array-API: count sketches, transforms, products, and parts side by side."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, constant, frozen, namespace
from kernattn.ops.countsketch.reference import countsketch
from kernattn.ops.tensor_sketch.order import order


def tensor_sketch(x: Array, index: NDArray[np.int64], weight: Float64, num_features: int, dtype: Any = None) -> Array:
    """Return the features of rows, (..., n, M)."""
    sketches = countsketch(x, index, weight, num_features)  # (..., n, p, M)
    xp = namespace(sketches=sketches)
    product = xp.prod(xp.fft.rfft(sketches), axis=-2)  # (..., n, M // 2 + 1)
    ends = [xp.real(product[..., :1])]
    if num_features % 2 == 0:
        ends.append(xp.real(product[..., -1:]))
    if num_features > 2:
        product = xp.take(product, constant(xp, order(num_features), xp.int32, sketches), axis=-1)
        parts = xp.stack([xp.real(product), xp.imag(product)], axis=-1)
        ends.append(xp.reshape(parts, (*product.shape[:-1], -1)))
    features = xp.concat(ends, axis=-1) * constant(xp, amplitudes(num_features), sketches.dtype, sketches)
    return features if dtype is None else xp.astype(features, dtype, copy=False)


@cache
def amplitudes(num_features: int) -> Float64:
    """Return the weights of the parts, (M,): every frequency but 0 and M / 2 stands for two of the whole spectrum."""
    weights = np.full(num_features, (2 / num_features) ** 0.5)
    weights[0] = num_features**-0.5
    if num_features % 2 == 0:
        weights[1] = num_features**-0.5
    return frozen(weights)
