r"""Count sketches of rows: every column is added, with a weight, to the bucket that it was hashed to.

``countsketch(x, index, weight, num_buckets, out)``: x (..., n, d), a floating array or a SciPy CSR matrix; index (p,
d) integers below num_buckets, and weight (p, d) float64, host arrays; out None, or the array to write to -> (..., n, p,
num_buckets) in the accumulation dtype of x,

.. math:: c_{rib} = \sum_{j : h_i(j) = b} w_{ij} x_{rj}.

Source: Charikar, Chen and Farach-Colton (2002). All p sketches are made in one pass over x, and a CSR matrix costs its
nonzero entries only, where a product with the dense hash matrix costs num_buckets times as much.
"""

from kernattn.ops.dispatch import Op

OP = Op("countsketch", ("reference", "cpu", "gpu"))
