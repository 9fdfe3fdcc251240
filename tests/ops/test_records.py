"""One record per op: it agrees with the op's siblings, and a new op reaches every framework by its record alone."""

import inspect
from importlib import import_module

import numpy as np
import pytest

import kernattn.ops
from kernattn._arrays.bridge import autocast
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import PeakedSum
from kernattn.ops.record import Output, Record
from kernattn.ops.records import RECORDS, beside, rows

OWN = [name for name in RECORDS if name not in ("linear_attention", "step")]
SIBLINGS = {
    "toy": '''
"""Squared norms of queries times values: out_i = |q_i|^2 v_i, 0 where `key_mask` is not True."""

from kernattn.ops.dispatch import Op

OP = Op("toy", ("reference", "cpu"))
''',
    "toy.reference": '''
"""In the array API."""

from kernattn._arrays.namespaces import namespace


def toy(q, v, key_mask):
    xp = namespace(v=v)
    out = xp.sum(q * q, axis=-1, keepdims=True) * v
    return out if key_mask is None else xp.where(key_mask[..., None], out, xp.zeros_like(out))
''',
    "toy.cpu": '''
"""On NumPy's arrays."""

import numpy as np


def toy(q, v, key_mask):
    out = np.sum(q * q, axis=-1, keepdims=True) * v
    return out if key_mask is None else np.where(key_mask[..., None], out, 0)
''',
    "toy_vjp": '''
"""Cotangents of queries and values."""

from kernattn.ops.dispatch import Op

OP = Op("toy_vjp", ("reference", "cpu"))
''',
    "toy_vjp.reference": '''
"""In the array API."""

from kernattn._arrays.namespaces import namespace
from kernattn._sums.cotangents import onto


def toy_vjp(q, v, key_mask, g):
    xp = namespace(v=v)
    g = g if key_mask is None else xp.where(key_mask[..., None], g, xp.zeros_like(g))
    dq = 2 * xp.sum(g * v, axis=-1, keepdims=True) * q
    dv = xp.sum(q * q, axis=-1, keepdims=True) * g
    return onto(xp, dq, tuple(q.shape)), onto(xp, dv, tuple(v.shape))
''',
    "toy_vjp.cpu": '''
"""On NumPy's arrays."""

from kernattn.ops.toy_vjp.reference import toy_vjp

__all__ = ["toy_vjp"]
''',
}
RECORD_AND_FUNCTION = 2  # files: a row of ops/records.py, and where the public function stands


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The public function of an op that nobody has heard of before."""
    folder, patch = tmp_path_factory.mktemp("ops"), pytest.MonkeyPatch()
    for name, text in SIBLINGS.items():
        path = folder.joinpath(*name.split("."))
        if "." not in name:
            path.mkdir()
            path = path / "__init__"
        path.with_suffix(".py").write_text(text.lstrip(), encoding="utf-8")
    patch.setattr(kernattn.ops, "__path__", [*kernattn.ops.__path__, str(folder)])
    op, pullback = (import_module(f"kernattn.ops.{name}").OP for name in ("toy", "toy_vjp"))
    record = Record(
        "toy", op, pullback, "v",
        (rows("q", "n d"), rows("v", "n e"), beside("key_mask", "n")),
        (Output("out", "array", ("n", "e"), ("q", "v"), "v"),),
    )  # fmt: skip
    patch.setitem(RECORDS, "toy", record)

    def function(q, v, *, key_mask=None, backend=None):
        q, v = autocast(q, v)
        return op.implementation(v, backend)(q, v, key_mask)

    yield function
    patch.undo()


def inputs():
    rng = np.random.default_rng(0)
    return rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5, 4)), np.arange(5) != 2


def wanted(g):
    q, v, mask = inputs()
    g = np.where(mask[:, None], g, 0)
    return 2 * np.sum(g * v, axis=-1, keepdims=True) * q, np.sum(q * q, axis=-1, keepdims=True) * g


def test_an_op_with_a_gradient_takes_eight_files():
    assert len(SIBLINGS) + RECORD_AND_FUNCTION <= 8


def test_the_toy_in_numpy(toy):
    q, v, mask = inputs()
    record = RECORDS["toy"]
    out = toy(q, v, key_mask=mask)
    np.testing.assert_allclose(out, toy(q, v, key_mask=mask, backend="reference"), rtol=1e-12)

    def way(op, like):
        return op.implementation(like)

    found = record.backward(way, False, (q, v, mask), (), (np.ones_like(out),))
    for x, y in zip(found, wanted(np.ones_like(out)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_the_toy_in_torch(toy):
    """Gradients, second thoughts of autocast, vmap, a whole graph, and the checks that PyTorch has for ops."""
    torch = pytest.importorskip("torch")
    from kernattn.torch._library import register
    from kernattn.torch._ops import TORCH_OPS, TorchOp

    if "toy" not in TORCH_OPS:  # another test has loaded the edge: an op of the house stands in the table by then
        TORCH_OPS["toy"] = TorchOp(RECORDS["toy"])
        register(TORCH_OPS["toy"])
    q, v, mask = (torch.tensor(x) for x in inputs())
    q.requires_grad_(), v.requires_grad_()
    assert torch.autograd.gradcheck(lambda q, v: toy(q, v, key_mask=mask), (q, v))
    toy(q, v, key_mask=mask).sum().backward()
    ones = np.ones((2, 5, 4))
    for x, y in zip((q.grad, v.grad), wanted(ones), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    each = torch.func.vmap(torch.func.grad(lambda q, v: toy(q, v, key_mask=mask).sum()))(q.detach(), v.detach())
    torch.testing.assert_close(each, q.grad)
    with torch.autocast("cpu", torch.bfloat16):
        assert toy(q.float(), v.float()).dtype == torch.bfloat16
    run = torch.compile(lambda q, v: torch.ops.kernattn.toy(q, v, mask, None), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(q, v), toy(q, v, key_mask=mask))
    torch.library.opcheck(torch.ops.kernattn.toy.default, (q, v, mask, None))


def test_the_toy_in_jax(toy):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        q, v, mask = (jax.numpy.asarray(x) for x in inputs())

        def total(q, v):
            return toy(q, v, key_mask=mask).sum()

        found = jax.jit(jax.grad(total, (0, 1)))(q, v)
        for x, y in zip(found, wanted(np.ones((2, 5, 4))), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
        np.testing.assert_allclose(jax.vmap(jax.grad(total))(q, v), found[0], rtol=1e-12)
        assert "callback" in jax.jit(total).lower(q, v).as_text()


@pytest.mark.parametrize("name", OWN)
def test_siblings_take_what_the_record_says(name):
    record = RECORDS[name]
    taken = [*inspect.signature(import_module(f"kernattn.ops.{name}.reference").__dict__[name]).parameters]
    assert tuple(taken[: len(record.inputs)]) == record.names
    options = record.options(dict.fromkeys(record.names, np.zeros(1)), True) if record.options else ()
    assert len(taken) == len(record.inputs) + len(options)
    pullback = record.pullback.name
    taken = [*inspect.signature(import_module(f"kernattn.ops.{pullback}.reference").__dict__[pullback]).parameters]
    kept = sum(each.kept for each in record.outputs)
    cotangents = sum(each.differentiable for each in record.outputs)
    assert tuple(taken[: len(record.inputs)]) == record.names
    assert len(taken) == len(record.inputs) + kept + cotangents + bool(record.maps)


@pytest.mark.parametrize("name", OWN)
def test_leaves_and_cotangents_return_to_where_they_came_from(name):
    record = RECORDS[name]
    given = []
    for each in record.inputs:
        size = np.zeros((2,) * len(each.axes)) if each.kind == "array" else None
        given.append(PeakedSum(*np.zeros((3, 2, 2, 2))) if each.kind == "sums" else size)
    leaves, constants = record.flat(given)
    assert len(leaves) == len(record.leaves)
    assert len(constants) == sum(each.kind in ("map", "constant") for each in record.inputs)
    sides = [each for each in record.inputs if each.differentiable and each.kind != "map"]
    found = [
        PeakedSum(1, 2, 3)
        if each.kind == "sums"
        else MapCotangent(each.name, f"{each.name} omega")
        if each.through
        else each.name
        for each in sides
    ]
    by_name = dict(zip((leaf.name for leaf in record.leaves), record.leaf_cotangents(tuple(found)), strict=True))
    for each in sides:
        if each.kind == "array":
            assert by_name[each.name] == each.name
        if each.through:
            assert by_name[f"{each.through}_omega"] == f"{each.name} omega"
