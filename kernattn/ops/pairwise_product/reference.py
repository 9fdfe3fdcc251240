"""Products of kernel matrices as written: the matrix, then its product."""

from kernattn._arrays.namespaces import Array, namespace
from kernattn.ops.pairwise.forms import Form
from kernattn.ops.pairwise.reference import pairwise


def pairwise_product(x: Array, y: Array | None, v: Array, form: Form) -> Array:
    """Return f(m(x_i, y_j)) v, (n, c)."""
    return namespace(x=x, v=v).matmul(pairwise(x, x if y is None else y, form), v)
