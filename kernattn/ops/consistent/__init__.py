r"""Consistent samples of weighted sets: a sign of the member and level that come first, for every feature.

``consistent(starts, places, logs, members, keys, out)``: sets are runs of entries, starts (n + 1,) int64 ascending,
none empty; places (E,) int32 say which of members (u,), words of 32 bits, an entry is, logs (E,) float32 the logarithm
of its weight S; keys (2, M) words, the second row odd; out (n, M), floating, is written. Arrays of the host,

.. math:: \phi_{ij} = M^{-1/2} s_j(b, t), \quad t_b = \lfloor \log S_b / r_b + \beta_b \rfloor, \quad
          b = \arg\min_b \log c_b - r_b (t_b - \beta_b + 1),

with :math:`r, c \sim \Gamma(2, 1)` and :math:`\beta` uniform, hashes of the member and the feature, and a random sign
s. Two sets have one sample with the probability :math:`\sum \min / \sum \max` of their weights. Source: Ioffe (2010),
algorithm 1. The numbers r, c and :math:`\beta` are made once for all entries of a member.
"""

from kernattn.ops.dispatch import Op

OP = Op("consistent", ("reference", "cpu"))
