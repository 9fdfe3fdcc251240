r"""Cotangents of queries, and of the summary of keys that they read, from those of their outputs.

``attend_vjp(state, q, q_spec, out, normaliser, g, learn)`` -> (state, q). The first three are what the op `attend`
took, for a spec without log scales of rows, which cancel (`MapSpec.unscaled`); out and normaliser, a
:class:`kernattn._sums.peaked.Normaliser` with Z = z e^peak, what it gave; g (..., n, e) is the cotangent of out.
Returned are a :class:`kernattn._sums.peaked.PeakedSum` of the cotangents of s and z, if these were in units of its peak
(`kernattn._sums.cotangents.in_units_of` brings them to those of the state), and a
:class:`kernattn._sums.cotangents.MapCotangent`.
"""

from kernattn.ops.dispatch import Op

OP = Op("attend_vjp", ("reference", "cpu", "gpu"))
