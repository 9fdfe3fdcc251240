"""All layers of a decoding step in one call: rows (B, dim) of a token of each sequence -> rows, or logits.

It has one implementation, by Numba. What the layers do by array operations is `kernattn.transformer.step`.
"""

__all__: list[str] = []
