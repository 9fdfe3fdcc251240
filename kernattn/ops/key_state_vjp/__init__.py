r"""Cotangents of keys and values from those of their summary.

``key_state_vjp(k, v, k_spec, key_mask, sums, learn)`` -> (k, v). The first four are what the op `key_state` took; sums
is a :class:`kernattn._sums.peaked.PeakedSum` of the cotangents of s and z, if these were in units of its peak: that
which the op gave, or any other. That of k is a :class:`kernattn._sums.cotangents.MapCotangent`.
"""

from kernattn.ops.dispatch import Op

OP = Op("key_state_vjp", ("reference", "cpu", "gpu"))
