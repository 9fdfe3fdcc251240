r"""Minwise hashes of sets: a sign of the member whose hash is least, for every feature.

``minwise(starts, members, keys, out)``: sets are runs of members, starts (n + 1,) int64 ascending, none empty; members
(E,) words of 32 bits; keys (2, M) such words, the second row odd; out (n, M), floating, is written. Arrays of the host,

.. math:: \phi_{ij} = M^{-1/2} s\big(\min_{b \in X_i} h_j(b)\big), \qquad
          h_j(b) = c\, (u \oplus \lfloor u / 2^{15} \rfloor), \qquad u = (b \oplus k_{1j})\, k_{2j},

modulo 2^32, c an odd constant, and s the sign that the last bit of the least hash gives, mixed once more. Sources:
Broder (1997); Li and Koenig (2011) for the bit. A hash and its minimum are six instructions on registers of 32-bit
lanes; `kernattn bench --cases tanimoto` times them.
"""

from kernattn.ops.dispatch import Op

OP = Op("minwise", ("reference", "cpu"))
