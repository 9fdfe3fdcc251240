r"""Projections of rows by chains of Hadamard transforms, without the dense matrix that they make up.

``hadamard(x, chains)``: x (..., n, d) -> (..., n, D) in the dtype of x,

.. math:: u = R\, [H D_k \cdots H D_1 (x, 0)]_{\text{blocks}},

with the factors of :class:`kernattn._maps.chains.Chains`. Source: Yu et al. (2016). p log p operations for p
frequencies. The op `features` decides where they stand in for the product with their matrix
(:mod:`kernattn.ops.features.crossover`); the compiled siblings write features in the same pass then.
"""

from kernattn.ops.dispatch import Op

OP = Op("hadamard", ("reference", "cpu", "gpu"))
