"""A token through all layers of a transformer as one compiled loop, the weights it reads and the memory it writes.

This is no op: it has no siblings, and its reference is `kernattn.transformer.step`, which says by array operations what
the loop computes. `stack.Stack` is what the transformer calls; all of it needs Numba.
"""
