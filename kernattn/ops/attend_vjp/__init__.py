r"""Cotangents of queries, and of the summary of keys that they read, from those of their outputs.

``attend_vjp(state, q, q_spec, out, normaliser, g, learn)`` -> (state, q). The first four and the normaliser are what
the op `attend` took and gave; g (..., n, e) is the cotangent of out. Returned are a
:class:`kernattn.ops.peaked.PeakedSum` of cotangents, whose peak has none and is 0, and a
:class:`kernattn.ops.cotangents.MapCotangent`.
"""

from kernattn._dispatch import Op

__all__ = ["OP"]

OP = Op("attend_vjp", ("reference", "cpu"))
