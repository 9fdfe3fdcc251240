"""What maps of the min-max kernel share: rows of every library, read on the host, and closed forms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.bridge import autocast
from kernattn._arrays.csr import as_floats, check_csr, is_sparse, numbers_of
from kernattn._arrays.hosted import Hosted, Pull, call_hosted
from kernattn._arrays.namespaces import INTEGERS, Array, Float64, accumulation_dtype, dtype_name, namespace, zeros
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import check_room, host_array, instance_of, positive_integer
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.tails import Tails
from kernattn.features._sets.rows import Sets, sets_of
from kernattn.kernels import Tanimoto
from kernattn.ops.dispatch import Op
from kernattn.ops.minwise.words import Words


@dataclass(frozen=True, eq=False, repr=False)
class SetFeatures(FeatureMap):
    r"""A map of signs with :math:`E\,\phi(x)^T \phi(y) = \sum \min / \sum \max`; see `kernattn.random_features`.

    Every feature is :math:`\pm M^{-1/2}`, and the product of two is the mean of M independent signs with the mean k, so
    that its variance is :math:`(1 - k^2) / M`. Rows are read on the host: those of other libraries are copied there,
    and come back. A CSR matrix is never made dense.

    Attributes
    ----------
    kernel : Tanimoto
        The kernel, of the form "minmax".
    columns : int
        The dimension d.
    keys : (2, M) numpy.ndarray
        Words of 32 bits as int64: what is added to a member's word, and an odd number by which it is multiplied.
    """

    kernel: Tanimoto
    columns: int
    keys: NDArray[np.int64]

    _op: ClassVar[Op]
    _entries: ClassVar[int]  # of sets that are hashed together
    _takes_csr = True

    def __post_init__(self) -> None:
        instance_of("kernel", self.kernel, Tanimoto)
        if self.kernel.form != "minmax":
            raise ParameterError(f"kernel must be Tanimoto(), of the form 'minmax'; got {self.kernel!r}")
        positive_integer("columns", self.columns)
        host_array("keys", self.keys, (2, "M"), ("int64",))
        if self.keys.min() < 0 or self.keys.max() >= 2**32 or not (self.keys[1] % 2 == 1).all():
            raise ParameterError("keys must be words of 32 bits, the second row odd")

    @abstractmethod
    def check_values(self, name: str, values: Array) -> None:
        """Raise unless values of rows on the host are such as the map takes."""

    @abstractmethod
    def _write(self, sets: Sets, out: NDArray[Any], op: Callable[..., None]) -> None:
        """Write the features of sets."""

    @classmethod
    def _sample(cls, kernel: Tanimoto, number: int, dim: int, rng: np.random.Generator) -> Self:
        check_room("keys", (2, number))
        keys = rng.integers(2**32, size=(2, number))
        keys[1] |= 1
        keys.setflags(write=False)
        return cls(kernel, dim, keys)

    @final
    @property
    def dim(self) -> int:
        return self.columns

    @final
    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return int(self.keys.shape[1])

    @final
    def redraw(self, rng: RNG = None) -> Self:
        return self._sample(self.kernel, self.num_features_of(self.dim), self.dim, generator(rng))

    @final
    @lazy
    def _words(self) -> Words:
        return self.keys.astype(np.uint32)

    @final
    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), with a log scale of 0."""
        xp = namespace(x=x)
        wide = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        return ScaledFeatures(self._features(wide, False, None), zeros(xp, (*x.shape[:-1], 1), wide.dtype, x))

    @final
    def _features(self, x: Any, key: bool, backend: str | None) -> Array:
        if is_sparse(x):
            x = as_floats("x", x)
            check_csr("x", x, self.dim)
            self._op.choose(x.data, backend)
            return self._of_rows(x, x.shape, x.dtype, backend)
        (x,) = autocast(x)
        whole = isinstance(x, np.ndarray) and dtype_name(x) in ("bool", *INTEGERS)
        if whole:  # read as they are
            self._check(np.broadcast_to(np.float32(0), x.shape))
        else:
            x = as_floats("x", x)
            self._check(x)
        self._op.choose(x, backend)
        if not isinstance(x, np.ndarray):
            return call_hosted(_OnHost(self, backend), x)[0]
        dtype = accumulation_dtype(np, x)
        rows = (x if whole else x.astype(dtype, copy=False)).reshape(-1, self.dim)
        features = self._of_rows(rows, x.shape, dtype, backend)
        return features if whole else features.astype(x.dtype, copy=False)

    def _of_rows(self, x: Any, shape: tuple[int, ...], dtype: Any, backend: str | None) -> NDArray[Any]:
        """Return the features of NumPy or CSR rows (n, d), in the leading axes of a shape."""
        self.check_values("x", numbers_of(x))
        out = np.empty((x.shape[0], self.keys.shape[1]), dtype)
        op = self._op.function(self._op.choose(out, "reference" if backend == "reference" else None))
        for here, sets in sets_of(x, self._entries):
            self._write(sets, out[here], op)
        return out.reshape(*shape[:-1], -1)

    @final
    def _mean(self, x: Float64, y: Float64) -> Float64:
        return np.asarray(self.kernel.pairs(x, y))

    @final
    def _bias(self, x: Float64, y: Float64) -> Float64:
        """Return zeros: signs agree by chance alone, or because samples do."""
        return np.zeros_like(self._mean(x, y))

    @final
    def _variance(self, x: Float64, y: Float64) -> Float64:
        return np.asarray((1 - self._mean(x, y) ** 2) / self.keys.shape[1])

    @final
    def _terms(self, x: Float64, y: Float64) -> Terms:
        mean = self._mean(x, y)
        return Terms(
            number=self.keys.shape[1],
            features=lambda m: m,
            kernel=mean,
            bias=lambda m: np.zeros_like(mean),
            variance=lambda m: (1 - mean**2) / m,
            size=np.ones_like(mean),
        )

    @final
    def _tails(self, x: Float64, y: Float64) -> Tails:
        """Return :math:`4 k^2 / (1 - k^2)`, 0 where k is 1 and the sign does not vary."""
        square = self._mean(x, y) ** 2
        varies = square < 1
        return Tails(np.where(varies, 4 * square / np.where(varies, 1 - square, 1.0), 0.0), self.keys.shape[1])


@final
@dataclass(frozen=True)
class _OnHost(Hosted):
    """The features as a function of arrays of any library; steps, whose derivative is 0."""

    phi: SetFeatures
    backend: str | None
    wide: ClassVar[bool] = False  # type: ignore[misc]

    def shapes(self, *arrays: Array) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the features."""
        return ((*arrays[0].shape[:-1], self.phi.keys.shape[1]),)

    def forward(self, *arrays: Float64) -> tuple[tuple[Float64, ...], Pull]:
        """Return the features, and what pulls cotangents back: zeros."""
        x = arrays[0]
        features = self.phi._of_rows(x.reshape(-1, x.shape[-1]), x.shape, np.float64, self.backend)
        return (features,), lambda cotangents: (np.zeros_like(x),)
