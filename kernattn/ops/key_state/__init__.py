r"""The summary of keys and values: S = sum_j phi(k_j) v_j^T and z = sum_j phi(k_j), in units of a peak per feature.

``key_state(k, v, k_spec, key_mask)`` -> :class:`kernattn._sums.peaked.PeakedSum`. k (..., n, d), or its
:class:`kernattn._maps.spec.ScaledFeatures` where k_spec is None; v (..., n, e); key_mask None or (..., n) bool.
"""

from kernattn.ops.dispatch import Op

OP = Op("key_state", ("reference", "cpu", "gpu"))
