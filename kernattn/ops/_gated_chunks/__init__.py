"""Gated linear attention on a GPU by chunks that know no state, for rows of 16 bits."""
