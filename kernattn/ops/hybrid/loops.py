"""What is read by features and what is read exactly, added up by their shares."""

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.memory import whole, window


@compiled
def blend(near, far, shares, others, low, high):
    """Make rows low to high of far (n, e) the sum of both times their shares (n,); all are flat."""
    near, far = whole(near), whole(far)
    e = near.size // shares.size
    for i in range(low, high):
        one, other = shares[i], others[i]
        source, target = window(near, i * e, e), window(far, i * e, e)
        for c in range(e):
            target[c] = other * target[c] + one * source[c]
