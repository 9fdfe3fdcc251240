"""Maps some of whose numbers are tensors, so that PyTorch can learn them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor

from kernattn._arrays.namespaces import Array
from kernattn._maps.chains import Chains
from kernattn._runtime.checks import instance_of, shown
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap, MapSpec, ScaledFeatures
from kernattn.kernels import Softmax
from kernattn.kernels._stationary import Stationary
from kernattn.ops.features import scaled
from kernattn.torch._specs import NUMBERS, TensorSpec


@final
@dataclass(frozen=True, eq=False, repr=False)
class TensorMap(FeatureMap):
    r"""A map :math:`\phi` with tensors in place of some of its numbers, as `with_numbers` makes it.

    Attributes
    ----------
    base : FeatureMap
        The map that says all other numbers. States carry its fingerprint.
    numbers : dict of str to Tensor
        The tensors, by name.
    """

    base: FeatureMap
    numbers: dict[str, Tensor]

    def __post_init__(self) -> None:
        """Take the draw of the base."""
        object.__setattr__(self, "fingerprint", self.base.fingerprint)

    @property
    def dim(self) -> int | None:
        """Input dimension d."""
        return self.base.dim

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features of an input of dimension `dim`."""
        return self.base.num_features_of(dim)

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers and tensors."""
        spec = self.base.spec
        assert spec is not None
        given = {name: getattr(spec, name) for name in NUMBERS} | numbers_of_spec(self)
        return TensorSpec(spec.kind, amplitude=spec.amplitude, row_form=spec.row_form, base=spec, **given)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), log scale apart, in the accumulation dtype."""
        return scaled(x, self.spec)

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), log scale apart, in the accumulation dtype."""
        return self.scaled_query(x)

    def redraw(self, rng: RNG = None) -> Self:
        """Raise: what is learnt is not drawn."""
        raise ParameterError("a map with tensors is not redrawn: redraw the map that it was made of")


def numbers_of_spec(phi: TensorMap) -> dict[str, Tensor]:
    """Return the tensors that stand for numbers of the spec."""
    given, spec = dict(phi.numbers), phi.base.spec
    assert spec is not None
    ratio = _ratio(phi.base, given.pop("lengthscale", None), given.pop("scale", None))
    if ratio is not None:
        for name, power in (("omega", 1), ("row_weights", 2)):
            number = given.get(name, getattr(spec, name))
            if number is not None:
                given[name] = torch.as_tensor(number, dtype=ratio.dtype, device=ratio.device) * ratio**power
    return given


def _ratio(base: Any, lengthscale: Tensor | None, scale: Tensor | None) -> Tensor | None:
    """Return by how much inputs (d,) are larger than those for which the frequencies were folded."""
    if lengthscale is None and scale is None:
        return None
    before = base.kernel.input_scale(base.dim)
    if lengthscale is not None:
        return torch.as_tensor(1 / before, dtype=lengthscale.dtype, device=lengthscale.device) / lengthscale
    assert scale is not None
    return scale.sqrt() * torch.as_tensor(1 / before, dtype=scale.dtype, device=scale.device)


def with_numbers(
    phi: FeatureMap,
    *,
    omega: Tensor | None = None,
    offset: Tensor | None = None,
    row_weights: Tensor | None = None,
    lengthscale: Tensor | None = None,
    scale: Tensor | None = None,
) -> TensorMap:
    r"""Return :math:`\phi` with tensors in place of some of its numbers: what requires a gradient is learnt.

    Every function takes the map in place of `phi`, plain `kernattn` with ``backend="reference"`` too. It costs a pass
    over the numbers a call: make it anew where tensors have changed, as in every call of a module's `forward`.

    Parameters
    ----------
    phi : FeatureMap
        A map with one spec, whose other numbers stay.
    omega : (D, d) Tensor, optional
        Frequencies in place of `phi.spec.omega`: the kernel's input scale is a part of them.
    offset : (M,) Tensor, optional
        In place of `phi.spec.offset`.
    row_weights : (d,) Tensor, optional
        In place of `phi.spec.row_weights`.
    lengthscale : () or (d,) Tensor, optional
        In place of the kernel's, of a stationary kernel, with all that was drawn held.
    scale : () Tensor, optional
        In place of that of the softmax kernel, likewise.

    Returns
    -------
    TensorMap
        The map.

    Raises
    ------
    ParameterError
        If no tensor is given, or the map has not the numbers.
    DTypeError, ShapeError
        If what is given is not a floating tensor of the number's shape.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.torch as kt
    >>> import torch
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=8, rng=0)
    >>> omega = torch.nn.Parameter(torch.tensor(phi.spec.omega))
    >>> q, k, v = torch.ones(3, 5, 4, dtype=torch.float64)
    >>> kt.linear_attention(q, k, v, kt.with_numbers(phi, omega=omega)).sum().backward()
    >>> omega.grad.shape
    torch.Size([8, 4])
    """
    given = {
        name: number
        for name, number in (
            ("omega", omega),
            ("offset", offset),
            ("row_weights", row_weights),
            ("lengthscale", lengthscale),
            ("scale", scale),
        )
        if number is not None
    }
    if torch.compiler.is_compiling():
        phi._named()
    else:
        _check(phi, given)
    return TensorMap(phi, given)


def _check(phi: FeatureMap, given: dict[str, Tensor]) -> None:
    instance_of("phi", phi, FeatureMap)
    if not given:
        raise ParameterError("with_numbers needs a tensor: omega, offset, row_weights, lengthscale or scale")
    if isinstance(phi, TensorMap):
        raise ParameterError("phi must be a map of numbers; got one with tensors: give all tensors at once")
    spec = phi.spec
    if spec is None:
        raise ParameterError(f"phi must be a map with one spec; {type(phi).__name__} has none")
    kernel = getattr(phi, "kernel", None)
    for name, number in given.items():
        if name in NUMBERS:
            found = getattr(spec, name)
            if found is None or isinstance(found, Chains):
                raise ParameterError(f"{name} needs a map whose spec has it as an array; got {shown(phi)}")
            shapes = [tuple(found.shape)]
        else:
            wanted, shapes = (Softmax, [()]) if name == "scale" else (Stationary, [(), (phi.dim,)])
            if not isinstance(kernel, wanted) or isinstance(spec.omega, Chains) or spec.row_form is not None:
                raise ParameterError(
                    f"{name} needs a map of a {wanted.__name__} kernel whose frequencies are an array; got {shown(phi)}"
                )
        if not isinstance(number, Tensor) or not number.is_floating_point():
            raise DTypeError(f"{name} must be a floating tensor; got {shown(number)}")
        if tuple(number.shape) not in shapes:
            raise ShapeError(f"{name} must have shape {' or '.join(map(str, shapes))}; got {tuple(number.shape)}")


class Known:
    """What a graph knows of a map that was drawn while it was made: names, and the fingerprint of its states."""

    def __init__(self, fingerprint: int, *content: str | None) -> None:
        self.fingerprint, self._content = fingerprint, content

    def _named(self) -> bool:
        return True


def known(phi: FeatureMap) -> tuple[Any, ...]:
    """Return what makes a `Known` of a map, which is kept for graphs."""
    phi._named()
    return phi.fingerprint, *phi._content
