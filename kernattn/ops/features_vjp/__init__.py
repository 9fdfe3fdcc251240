r"""Cotangents of rows, and of a map's numbers, from those of its features.

``features_vjp(x, spec, g, learn)`` -> :class:`kernattn._sums.cotangents.MapCotangent`. x (..., n, d); g (..., n, M),
the cotangent of phi(x) in its dtype; the numbers' cotangents, summed over all rows, where `learn` asks for them.
"""

from kernattn.ops.dispatch import Op

OP = Op("features_vjp", ("reference", "cpu", "gpu"))
