"""Fixtures every test sees: kinds of array, backends, and poisoned memory."""

import contextlib
import functools
import gc
import hashlib
import importlib
import mmap
import os
import sys
import threading
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import kernattn
from kernattn._arrays.namespaces import without_flags
from kernattn.cli._bench import load
from kernattn.ops import dispatch
from xp import JAX, KINDS, backends

os.environ.setdefault("KERNATTN_MATRIX_UNIT", "0")  # its own tests turn it on

HERE = Path(__file__).parent
USUAL_OF_JAX = 6  # of each test one case in so many: XLA compiles for every shape and dtype
USUAL = {  # of their many cases one in so many: the others are a denser grid of the same
    "attention/test_extremes.py::test_nan_and_infinity_stay_where_they_are_seen": 2,
    "attention/test_extremes.py::test_the_reference_is_finite_for_every_finite_input": 3,
    "attention/test_laws.py::test_all_forms_agree": 2,
    "attention/test_laws.py::test_linear_in_the_values": 2,
    "attention/test_other_maps.py::test_the_laws_hold": 2,
    "bench/test_cpu.py::test_contestants_compute_the_same": 3,
    "cuda_ops/test_alignment.py::test_unaligned_arrays": 2,
    "cuda_ops/test_bench.py::test_contestants_compute_the_same": 2,
    "cuda_ops/test_blind.py::test_blind_to_the_future": 3,
    "cuda_ops/test_causal.py::test_causal": 2,
    "cuda_ops/test_compile.py::test_hopper": 3,
    "cuda_ops/test_compile.py::test_other_architectures": 2,
    "cuda_ops/test_features.py::test_features": 2,
    "cuda_ops/test_gated_chunks.py::test_laws": 2,
    "cuda_ops/test_gated_vjp.py::test_cotangents": 2,
    "cuda_ops/test_gram.py::test_gram": 2,
    "cuda_ops/test_hadamard.py::test_hadamard": 2,
    "cuda_ops/test_key_state.py::test_bidirectional": 2,
    "cuda_ops/test_orders.py::test_every_kernel": 2,
    "cuda_ops/test_orthogonalize.py::test_orthogonalize": 2,
    "cuda_ops/test_plans.py::test_plans": 2,
    "cuda_ops/test_public.py::test_forms_agree": 2,
    "cuda_ops/test_two_maps.py::test_two_maps": 2,
    "edges/test_sklearn.py::test_checks_of_arrays": 2,
    "edges/test_sklearn.py::test_checks_of_scikit_learn": 2,
    "features/test_closed_forms.py::test_mean_and_variance": 3,
    "features/test_combinations.py::test_maps": 2,
    "features/test_composite.py::test_features_are_joined": 2,
    "features/test_forged_files.py::test_forgeries": 2,
    "features/test_sketches.py::test_mean_and_variance": 2,
    "kernels/test_extremes.py::test_the_formula_at_every_size": 3,
    "kernels/test_products.py::test_every_kernel": 2,
    "ops/test_block_softmax.py::test_every_shape": 2,
    "ops/test_causal.py::test_every_kind_and_shape": 2,
    "ops/test_features_vjp.py::test_every_kind_and_shape": 2,
    "ops/test_tensor_sketch.py::test_leading_axes_kinds_and_dtypes": 2,
    "studies/test_judgements.py::test_nothing_is_claimed_of_means_that_are_not_settled": 2,
    "studies/test_presets.py::test_page": 2,
    "studies/test_sweep.py::test_a_mean_that_few_redraws_carry_has_no_interval": 3,
    "test_torch_wrong_calls.py::test_a_graph_refuses_what_a_call_refuses": 2,
}
FIRST = {"ops": 3, "cuda_ops": 2, "studies": 1}  # groups of tests, others 0
LONG = (  # of few tests
    "quality/test_tutorials.py",
    "huggingface/test_compiled.py",
    "examples/test_regret.py",
    "examples/test_image_generation.py",
    "attention/test_decayed_torch.py",
    "attention/test_linear_matrix.py",
    "attention/test_softmax_matrix.py",
    "features/test_fit.py",
    "test_warmup.py",
)
IMPORTS = (  # the long ones, in two halves that take as long
    ("torch._dynamo", "transformers.models.bert.modeling_bert"),
    ("jax", "sklearn.utils.estimator_checks", "scipy.stats", "numba", "distributed", "matplotlib.pyplot"),
)
COLLECTS = threading.Event()  # are tests being collected?
WIDE = "KERNATTN_TESTS_WIDE"  # 1: all loops are compiled for float64 as well
SMALL = "write_pairs"  # the loop that landmarks of maps among parameters take
os.environ["NUMBA_CACHE_DIR"] = str(HERE / ".numba_cache")  # what is compiled below is not for users
os.environ["KERNATTN_QUIET"] = "1"  # loops are compiled in silence, here and in other processes
PACKAGE = Path(kernattn.__file__).parents[1]  # of an installed wheel, or this folder's parent
os.environ["PYTHONSAFEPATH"] = "1"  # other processes import it too, wherever they are: its loops are compiled once
os.environ["PYTHONPATH"] = os.pathsep.join(  # loops that were compiled here need this file there, too
    dict.fromkeys([str(PACKAGE), str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
)
sys.path.append(str(HERE.parent))  # joblib gives its workers this list in place of PYTHONPATH


def fast_to_compile():
    """Flags of XLA, whose compiler is most of the time of JAX's tests; one that a release lacks ends the process."""
    flags, spec = ["--xla_backend_optimization_level=0"], find_spec("jaxlib")
    for library in Path(spec.origin).parent.glob("libjax_common.so") if spec else ():
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
            flags += ["--xla_cpu_use_fusion_emitters=false"] if code.find(b"xla_cpu_use_fusion_emitters") >= 0 else []
    return " ".join(flags)


os.environ.setdefault("XLA_FLAGS", fast_to_compile())

load(HERE.parent / "docs" / "bench")  # where the cases of the benchmark are: tests import them as `bench`

settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=16,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", parent=settings.get_profile("fixed"), derandomize=False, max_examples=500)
settings.load_profile("fixed")  # `pytest --hypothesis-profile=thorough` searches further


def odd(config):
    """Is this every other worker? In a fresh clone both write the bytecode of all modules: each begins with half."""
    return int(getattr(config, "workerinput", {}).get("workerid", "gw0").removeprefix("gw")) % 2


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What modules and tests are made of stays to the end: the garbage collector looks at it once."""
    gc.disable()
    COLLECTS.set()
    try:
        for name in IMPORTS[odd(session.config)] if hasattr(session.config, "workerinput") else ():
            with contextlib.suppress(ImportError):  # a test that needs it says so
                importlib.import_module(name)
        return (yield)
    finally:
        COLLECTS.clear()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # what tests make goes without it, as a rule
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Every other worker goes through the folders and files from the last to the first."""
    report = yield
    if isinstance(collector, pytest.Dir) and odd(collector.config):
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Slow tests run where they are asked for: `pytest -m slow`. So do cases of which few are usual."""
    if hasattr(config, "workerinput"):  # see `odd`: all workers have the same list
        items.sort(key=lambda item: item.path)
    cases = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0].removeprefix("tests/")
        with_jax = getattr(getattr(item, "callspec", None), "params", {}).get("xp") == JAX
        usual = max(USUAL.get(test, 1), USUAL_OF_JAX * with_jax)
        if usual > 1:
            if cases[test, with_jax] % usual:
                item.add_marker(pytest.mark.slow)
            cases[test, with_jax] += 1
    if "slow" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    yield  # pytest puts together what shares a fixture
    if hasattr(config, "workerinput"):
        sizes = Counter(group(item.nodeid) for item in items)
        sizes.update(dict.fromkeys(LONG, len(items)))  # at the end one worker would wait for them
        sizes["quality/test_documents.py"] = 80  # in the middle: pages find the loops that others have compiled
        items.sort(key=lambda item: (-FIRST.get(group(item.nodeid), 0), -sizes[group(item.nodeid)]))


def group(test):
    """What one worker makes once for many tests stays with it: `pytest -n 2 --dist loadscope --no-loadscope-reorder`.

    The ops compile every loop, and the others find it on the disk; studies measure each preset once; JAX compiles in
    memory; a file has what it caches.
    Workers begin with the ops and with the kernels of CUDA, which need none of these loops, and go on with the studies,
    then from large groups to small ones.
    """
    file = test.partition("::")[0].removeprefix("tests/")
    if "jax" in test:
        return "jax"
    return next((name for name in FIRST if file.startswith(f"{name}/")), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand groups to the workers, see `group`."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    return Groups(config, log)


@pytest.fixture(params=KINDS, ids=repr, scope="session")
def xp(request):
    """Each kind of array in turn, see xp.Kind."""
    return request.param


@pytest.fixture(params=backends("causal", "step", "key_state", "attend"), ids=repr, scope="session")
def backend(request):
    """Each backend that can run linear attention here, see xp.Backend."""
    return request.param


@pytest.fixture
def no_figures(monkeypatch):
    """Leave the drawing out, where it is not what is tested."""
    monkeypatch.setattr("kernattn.studies._presets.draw.write_figures", lambda *_: [])


@pytest.fixture
def on_threads(monkeypatch):
    """-> a function that has work, however short, shared by so many threads; one thread shares none."""

    def use(count):
        monkeypatch.setenv("KERNATTN_NUM_THREADS", str(count))
        monkeypatch.setattr("kernattn._runtime.parallel.WORTH_SHARING", 0.0 if count > 1 else np.inf)

    return use


@pytest.fixture
def matrix_unit(monkeypatch):
    """The matrix unit of this machine, emulated where there is none; one thread. It serves all that it can."""
    pytest.importorskip("numba")
    from kernattn.ops._numba.matrix import operands, unit
    from kernattn.ops.block_softmax import matrix as exact
    from kernattn.ops.features import matrix as features
    from kernattn.ops.key_state import matrix

    monkeypatch.setattr(operands, "PARTS", 2)
    monkeypatch.setattr(features, "SERVED", True)
    monkeypatch.setattr(matrix, "SERVED", True)
    monkeypatch.setattr(exact, "FEWEST", 16)
    monkeypatch.setattr(matrix, "UNPROJECTED", matrix.FEATURES)
    monkeypatch.setattr(matrix, "PARTS", 2)

    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    monkeypatch.setenv(unit.VARIABLE, unit.EMULATED)
    if unit.why_not() is not None:
        pytest.skip(unit.why_not())


@pytest.fixture
def by_floats(monkeypatch):
    """-> what a function returns without the unit."""

    def run(function, *rows, **options):
        with monkeypatch.context() as without:
            without.setenv("KERNATTN_MATRIX_UNIT", "0")
            return function(*rows, **options)

    return run


LOAD = dispatch._load


@functools.cache
def load_narrow(op, backend):
    """The loops that pull gates back are the longest to compile: of float64, tests take the array operations.

    The source is one. In float32, tests compare its loops with these.
    """
    loops = LOAD(op, backend)
    if (op, backend) != ("gated_vjp", "cpu") or os.environ.get(WIDE, "0") != "0":
        return loops
    by_arrays = without_flags(LOAD(op, "reference"))

    @functools.wraps(loops)
    def gated_vjp(q, k, v, *others):
        return (by_arrays if v.dtype == np.float64 else loops)(q, k, v, *others)

    return gated_vjp


dispatch._load = load_narrow


@pytest.fixture(autouse=True, scope="module")
def own_threads():
    """Races give BLAS and PyTorch as many threads as ours, for a whole process; the file that follows has its own."""
    torch = sys.modules.get("torch")
    count = torch.get_num_threads() if torch else 0
    with threadpool_limits(None) if find_spec("threadpoolctl") else contextlib.nullcontext():
        yield
    if torch and torch.get_num_threads() != count:
        torch.set_num_threads(count)


def _poisoned(allocate):
    def poisoned(*args, **kwargs):
        result = allocate(*args, **kwargs)
        if result.dtype.kind in "fc":
            result.fill(np.nan)
        return result

    return poisoned


EMPTY, EMPTY_LIKE = np.empty, np.empty_like
POISONED = {"empty": _poisoned(np.empty), "empty_like": _poisoned(np.empty_like)}

if find_spec("threadpoolctl"):
    from threadpoolctl import threadpool_limits

if find_spec("numba"):  # what Numba compiles in a test, its own np.zeros among it, gets the plain functions
    import_module("numba.np.arrayobj")  # which learns what np.empty is before it is another
    from numba.core.caching import FunctionCache
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher
    from numba.extending import overload

    overload(POISONED["empty"])(lambda shape, dtype=float: lambda shape, dtype=float: EMPTY(shape, dtype))
    overload(POISONED["empty_like"])(lambda arr, dtype=None: lambda arr, dtype=None: EMPTY_LIKE(arr, dtype))

    COMPILE = Dispatcher.compile

    def compile_once(self, signature):
        """Compile, or wait while another worker compiles this loop, and read what it left on the disk."""
        kept = isinstance(self._cache, FunctionCache)  # a loop, and no part of one
        if COLLECTS.is_set() and kept and self.__name__ != SMALL:  # in all workers at once: one compiles, others wait
            raise RuntimeError(f"{self.__name__} is compiled while tests are collected: call it in a test")
        with global_compiler_lock, _held(self._cache, signature), _uncollected():
            return COMPILE(self, signature)

    @contextlib.contextmanager
    def _uncollected():
        """The garbage collector finds nothing in what Numba makes until it is done, and takes 7 % of its time."""
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()

    @contextlib.contextmanager
    def _held(cache, signature):
        if not isinstance(cache, FunctionCache) or not find_spec("fcntl"):
            yield
            return
        import fcntl

        own = hashlib.sha256(repr(signature).encode()).hexdigest()[:16]  # who loads a loop waits for no other dtype's
        with Path(cache.cache_path, f"{cache._impl.filename_base}.{own}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked here may still hold the file open

    Dispatcher.compile = compile_once


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Memory that nobody wrote is NaN, so that reading it shows."""
    for name, poisoned in POISONED.items():
        monkeypatch.setattr(np, name, poisoned)
