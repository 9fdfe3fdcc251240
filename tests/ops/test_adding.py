"""The recipes of docs/adding.md for an op, its gradient and a kind of nonlinearity, followed."""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import kernattn as ka
from kernattn import ops
from kernattn._gradients.recorded import run_with_pullback
from kernattn._gradients.rules import RULES
from kernattn._maps.kinds import Kind
from kernattn.ops import dispatch as _dispatch
from kernattn.ops._cuda.sources import HEADERS
from kernattn.ops.record import Output, Record
from kernattn.ops.records import RECORDS, rows
from seam import KINDS, MapSpec

FOLDER = Path(ops.__file__).parent
ROWS = np.random.default_rng(1).standard_normal((30, 4))
FILES = {
    "__init__": """
from kernattn.ops.dispatch import Op
OP = Op("doubled", ("reference", "cpu"))
""",
    "reference": """
def doubled(x):
    return 2 * x
""",
    "cpu": """
import numpy as np
from kernattn.ops.doubled.loops import fill
def doubled(x):
    out = np.empty(x.shape, x.dtype)
    fill(x.reshape(-1), out.reshape(-1))
    return out
""",
    "loops": """
from kernattn.ops._numba.codegen.compile import compiled
@compiled
def fill(x, out):
    for i in range(x.size):
        out[i] = 2 * x[i]
""",
}


VJP_FILES = {
    "__init__": """
from kernattn.ops.dispatch import Op
OP = Op("doubled_vjp", ("reference",))
""",
    "reference": """
def doubled_vjp(x, g):
    return (2 * g,)
""",
}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders among the ops."""
    for op, files in ("doubled", FILES), ("doubled_vjp", VJP_FILES):
        (tmp_path / op).mkdir()
        for name, text in files.items():
            (tmp_path / op / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(ops, "__path__", [*ops.__path__, str(tmp_path)])
    yield [import_module(f"kernattn.ops.{op}") for op in ("doubled", "doubled_vjp")]
    _dispatch._load.cache_clear()
    for name in [name for name in sys.modules if name.startswith("kernattn.ops.doubled")]:
        del sys.modules[name]
    del ops.doubled, ops.doubled_vjp


@pytest.fixture
def doubled(folders, monkeypatch):
    """The op, in the table of ops."""
    op = folders[0].OP
    monkeypatch.setitem(ops.OPS, "doubled", op)
    return op


@pytest.fixture
def record(folders, monkeypatch):
    """The record of the op and its pullback: all that is said of them to any framework."""
    op, pullback = (folder.OP for folder in folders)
    given = rows("x", "n d")
    record = Record(
        "doubled", op, pullback, "x", (given,), (Output("out", "array", ("n", "d"), ("x",), "x"),)
    )  # fmt: skip
    monkeypatch.setitem(RECORDS, "doubled", record)
    return record


def test_an_op(doubled):
    assert doubled.choose(ROWS) == "cpu"
    assert re.search(r"doubled +cpu", ka.studies.describe())
    for backend in ("reference", "cpu"):
        np.testing.assert_array_equal(doubled.implementation(ROWS, backend)(ROWS), 2 * ROWS)


def test_a_gradient_in_numpy(record, monkeypatch):
    def double(x):
        return record.op.implementation(x)(x)

    def rule(x):
        (out,), pulled = run_with_pullback("doubled", (x,), None)
        return out, pulled

    monkeypatch.setitem(RULES, double, rule)
    out, pullback = ka.vjp(double, ROWS)
    np.testing.assert_array_equal(out, 2 * ROWS)
    np.testing.assert_array_equal(pullback(ROWS)["x"], 2 * ROWS)


@pytest.fixture
def edge():
    """PyTorch's edge, loaded before there is another record."""
    pytest.importorskip("torch")
    return import_module("kernattn.torch._library")


def test_a_gradient_in_pytorch(edge, record, monkeypatch):
    """Autograd, `vmap`, and an op of graphs with its schema and shapes."""
    op = edge.TorchOp(record)
    monkeypatch.setitem(edge.TORCH_OPS, "doubled", op)
    edge.register(op)
    torch = edge.torch
    x = torch.tensor(ROWS, requires_grad=True)

    def double(x):
        return record.op.implementation(x)(x)

    double(x).square().sum().backward()
    np.testing.assert_allclose(x.grad, 8 * ROWS)
    batch = torch.vmap(torch.func.grad(lambda x: double(x).square().sum()))(x.detach().expand(3, *x.shape))
    np.testing.assert_allclose(batch, 8 * np.broadcast_to(ROWS, (3, *ROWS.shape)))
    assert torch.autograd.gradcheck(double, (x,))
    whole = torch.compile(lambda x: torch.ops.kernattn.doubled(x, None), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(x), double(x))
    torch.library.opcheck(torch.ops.kernattn.doubled.default, (x, None))


def test_a_gradient_in_jax(record):
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(ROWS, "float32")
    slope = jax.grad(lambda x: jax.numpy.sum(record.op.implementation(x)(x) ** 2))
    np.testing.assert_allclose(jax.jit(slope)(x), 8 * x, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(slope)(x[None]), 8 * x[None], rtol=1e-6)


def test_kernels_have_their_headers():
    assert set(HEADERS) == {path.parent.name for path in FOLDER.glob("*/kernels.cu")}
    for header in {name for headers in HEADERS.values() for name in headers}:
        assert (FOLDER / header).is_file(), header


def test_a_kind(monkeypatch):
    """Its row is all that the reference wants."""
    monkeypatch.setitem(KINDS, "softsign", Kind("softsign", 99, lambda xp, u: u / (1 + xp.abs(u))))
    spec, u = MapSpec("softsign", omega=ROWS[:5], amplitude=0.5), ROWS @ ROWS[:5].T
    features = ops.OPS["features"].implementation(ROWS, "reference")(ROWS, spec)
    np.testing.assert_allclose(features, 0.5 * u / (1 + np.abs(u)), rtol=1e-12)
