"""NVRTC compiles every kernel; what it reports of registers, spills and shared memory stays within the budgets."""

import pytest

from cuda_ops import nvrtc
from cuda_ops.instances import DTYPES, LIMITS, MAPS, instances, rounded
from kernattn.ops._cuda import sources

REASON = nvrtc.available()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"needs NVRTC: {REASON}")

SPILL_BUDGET = {"float64": 512}  # bytes stored, and loaded
FEW = 16  # of the other types
KERNELS = {
    "features": {"features"},
    "features_vjp": {"features_vjp"},
    "key_state": {"summarise", "scan"},
    "attend": {"attend"},
    "attend_vjp": {"ask"},
    "key_state_vjp": {"read_back"},
    "causal_vjp": {"walk_back"},
    "causal": {"walk"},
    "step": {"prepare", "stream"},
    "gated": {"tokens", "chunks"},
    "_gated_chunks": {"prepare", "walk"},
    "gated_vjp": {"pull_back"},
    "causal_conv": {"causal_conv"},
    "causal_conv_step": {"causal_conv_step"},
    "selective_step": {"selective_step"},
    "block_softmax": {"block_softmax"},
    "block_softmax_vjp": {"ask", "back"},
    "gram": {"slab_features", "outer", "collect"},
    "hadamard": {"hadamard"},
    "orthogonalize": {"orthogonalize"},
    "countsketch": {"countsketch"},
    "tensor_sketch": {"tensor_sketch"},
}


def widest(found):
    """Of every kernel and map the instance of the largest tiles: they take the most registers."""
    tiles = {
        x: [int(each.rpartition("=")[2]) for each in x.defines if each.startswith(("-DDB=", "-DEB="))] for x in found
    }
    best = {}
    for x in sorted(found, key=tiles.__getitem__):
        best[x.op, x.dtype, x.map] = x  # of one map and two, that of two
    return list(best.values())


SHORT = {"causal_conv", "causal_conv_step", "selective_step"}
PLAIN = {"countsketch", "tensor_sketch", "orthogonalize", "hadamard"}  # without tensor cores, as those
BY_DTYPE = {  # which ops are compiled for Hopper: each once, and each dtype
    "bfloat16": {"features", "gram", "key_state", "causal", "step", *SHORT},
    "float16": {"block_softmax", "block_softmax_vjp"},
    "float32": PLAIN,
    "float64": {"attend"},
    "tf32": {"attend"},
}
SIZES = ((128, 128), (16, 32), (32, 64))
USUAL = [
    x for x in widest(instances(LIMITS[90], maps=("exp",)) + rounded(LIMITS[90], ("exp",))) if x.op in BY_DTYPE[x.dtype]
]
PAIR = {"-DRULE=2", "-DCHANNELS=1", "-DEB=64"}  # and decays of channels: what takes the most registers
USUAL += [x for x in instances(LIMITS[90], ("bfloat16",), ()) if "gated" in x.op and set(x.defines) >= PAIR]
LARGE = {"-DRULE=1", "-DCHANNELS=1", "-DCHUNK=64", "-DEB=64"}
USUAL += [x for x in instances(LIMITS[90], ("bfloat16",), ()) if "chunks" in x.op and set(x.defines) >= LARGE]
BACK = ("features_vjp", "key_state_vjp", "attend_vjp", "causal_vjp")  # each once, in small tiles
USUAL += {x.op: x for x in instances(LIMITS[90], ("bfloat16",), ("relu",), ((32, 32),)) if x.op in BACK}.values()
EVERY = [x for x in instances(LIMITS[90], sizes=SIZES) + rounded(LIMITS[90], sizes=SIZES) if x not in USUAL]
OTHER_OPS = {  # the oldest without and with products of bfloat16, and the newest
    75: ("attend",),
    80: ("features", "key_state", "step"),
    120: ("attend",),
}
OTHERS = [
    (arch, x)
    for arch, ops in OTHER_OPS.items()
    for x in widest(instances(LIMITS[arch], ("bfloat16",), ("exp",)))
    if x.op in ops
]
EVERY_OTHER = [(arch, x) for arch in LIMITS if arch != 90 for x in instances(LIMITS[arch]) if (arch, x) not in OTHERS]
EVERY_OTHER += [(arch, x) for arch in (80, 89, 100, 120) for x in rounded(LIMITS[arch])]


def check(instance, arch):
    compiled = nvrtc.compile_source(sources.source(instance.op), instance.defines, arch)
    assert set(compiled.kernels) == KERNELS[instance.op]
    for name, kernel in compiled.kernels.items():
        budget = SPILL_BUDGET.get(instance.dtype, FEW)
        assert max(kernel.spill_stores, kernel.spill_loads) <= budget, f"{name} spills: {kernel}"
        assert kernel.registers <= 255
        assert kernel.shared == 0, "all shared memory is dynamic: the emulation fills it with NaN"
    assert instance.shared_bytes <= LIMITS[arch].shared_bytes
    wanted = "mma.sync.aligned." + {
        "bfloat16": "m16n8k16",
        "tf32": "m16n8k8",
        "float16": "m16n8k16" if instance.op in ("block_softmax", "_gated_chunks") else "m16n8k8",
    }.get(instance.dtype, "")
    assert (wanted in compiled.ptx) == instance.uses_tensor_cores
    assert "mma.sync" not in compiled.ptx or instance.uses_tensor_cores, (
        "float32 and float64 are not rounded unless asked"
    )


@pytest.mark.parametrize("instance", USUAL, ids=str)
def test_hopper(instance):
    check(instance, 90)


@pytest.mark.parametrize(("arch", "instance"), OTHERS, ids=str)
def test_other_architectures(arch, instance):
    check(instance, arch)


@pytest.mark.slow
@pytest.mark.parametrize("instance", EVERY, ids=str)
def test_hopper_every_instance(instance):
    check(instance, 90)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "instance"), EVERY_OTHER, ids=str)
def test_other_architectures_every_instance(arch, instance):
    check(instance, arch)


def test_the_table_is_whole():
    assert {x.op for x in USUAL} == set(KERNELS) == set(sources.HEADERS)
    assert {(x.dtype, x.map) for x in USUAL + EVERY if x.op == "causal"} == {
        (d, m) for d in (*DTYPES, "tf32") for m in MAPS
    }


def test_a_kernel_that_spills_is_seen():
    body = "".join(f"x[{i}] = p[{i}];" for i in range(300)) + "for (int i = 0; i < 300; ++i) __syncthreads();"
    body += "".join(f"p[{i}] = x[{299 - i}];" for i in range(300))
    source = f'extern "C" __global__ void __launch_bounds__(1024) spills(volatile float* p) {{ float x[300]; {body} }}'
    assert nvrtc.compile_source(source, (), 90).kernels["spills"].spill_stores > 0


def test_an_error_is_reported():
    with pytest.raises(nvrtc.CompileError, match="undefined"):
        nvrtc.compile_source('extern "C" __global__ void f(float* p) { *p = nothing_of_that_name; }', (), 90)
