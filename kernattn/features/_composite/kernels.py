"""How many features each member of a sum or product of kernels gets."""

from collections.abc import Callable
from math import log

import numpy as np

from kernattn.errors import KernattnError, ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite.multiples import ScaledMap
from kernattn.features._composite.products import TensorProduct
from kernattn.features._composite.sums import Concatenated
from kernattn.kernels import Kernel, Product, Scaled, Sum


def composite_features(
    kernel: Sum | Product | Scaled,
    num_features: int,
    rng: np.random.Generator,
    make: Callable[[Kernel, int], FeatureMap],
) -> FeatureMap:
    """Return the map of a composite kernel, its members' maps made by `make` of a kernel and a number of features.

    Terms of a sum get equal shares of the features, and factors of a product numbers as equal as can be. Where a member
    is refused after another was drawn, the generator that `make` draws from is left as it was.
    """
    if isinstance(kernel, Scaled):
        return ScaledMap(kernel.factor, make(kernel.kernel, num_features))
    members, before = len(kernel.kernels), rng.bit_generator.state
    if isinstance(kernel, Sum):
        if num_features % members:
            raise ParameterError(
                f"num_features must be a multiple of the {members} terms of the sum; got {num_features} "
                "(phi1 + phi2 joins maps of any sizes)"
            )
        sizes = (num_features // members,) * members
    else:
        sizes = _sizes(num_features, members, 2) or _sizes(num_features, members, 1)
        if min(sizes) == 1 < members:
            raise ParameterError(
                f"num_features must be a product of {members} numbers above 1, one for each factor of the kernel; "
                f"got {num_features} (phi1 * phi2 multiplies maps of any sizes)"
            )
    try:
        maps = tuple(make(member, size) for member, size in zip(kernel.kernels, sizes, strict=True))
    except KernattnError:
        rng.bit_generator.state = before
        raise
    return Concatenated(maps) if isinstance(kernel, Sum) else TensorProduct(maps)


def _sizes(total: int, members: int, step: int) -> tuple[int, ...]:
    """Return `members` multiples of `step` whose product is `total`, as equal as can be; () if there are none."""
    if members == 1:
        return () if total % step else (total,)
    first = round(total ** (1 / members))
    divisors = [size for size in range(step, total + 1, step) if total % size == 0]
    for size in sorted(divisors, key=lambda size: abs(log(size) - log(first))):
        rest = _sizes(total // size, members - 1, step)
        if rest:
            return (size, *rest)
    return ()
