"""Every way the kernels are compiled: op, compiler options, and the dynamic shared memory of its largest launch."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

import kernattn as ka
from kernattn.ops._cuda import runtime
from kernattn.ops._cuda.linear import Slabs, linear_code
from kernattn.ops._cuda.maps import map_code as code_of
from kernattn.ops._cuda.sizes import C_TYPES, accumulator_of
from kernattn.ops._gated_chunks import gpu as gated_chunks
from kernattn.ops.attend import gpu as attend
from kernattn.ops.attend_vjp import gpu as attend_vjp
from kernattn.ops.block_softmax import gpu as block_softmax
from kernattn.ops.block_softmax_vjp import gpu as block_softmax_vjp
from kernattn.ops.causal import gpu as causal
from kernattn.ops.causal_conv import gpu as causal_conv
from kernattn.ops.causal_conv_step import gpu as causal_conv_step
from kernattn.ops.causal_vjp import gpu as causal_vjp
from kernattn.ops.countsketch import gpu as countsketch
from kernattn.ops.features import gpu as features
from kernattn.ops.features_vjp import gpu as features_vjp
from kernattn.ops.features_vjp.pulled import pulled_code
from kernattn.ops.gated import gpu as gated
from kernattn.ops.gated_vjp import gpu as gated_vjp
from kernattn.ops.gram import gpu as gram
from kernattn.ops.hadamard import gpu as hadamard
from kernattn.ops.key_state import gpu as key_state
from kernattn.ops.key_state_vjp.back import back_code, walk_code
from kernattn.ops.key_state_vjp.back import launch as back_launch
from kernattn.ops.orthogonalize import gpu as orthogonalize
from kernattn.ops.selective_step import gpu as selective_step
from kernattn.ops.step import gpu as step
from kernattn.ops.tensor_sketch import gpu as tensor_sketch
from seam import KINDS, MapSpec

LIMITS = {
    75: runtime.Limits(75, 65536, 40),
    80: runtime.Limits(80, 166912, 108),
    89: runtime.Limits(89, 101376, 128),
    90: runtime.Limits(90, 232448, 132),
    100: runtime.Limits(100, 232448, 148),
    120: runtime.Limits(120, 101376, 188),
}
DTYPES = ("float16", "bfloat16", "float32", "float64")
MAPS = (*KINDS, "elementwise", "values", "logs")
SHORT = ("causal_conv", "causal_conv_step", "selective_step")
WITHOUT_PRODUCTS = ("step", "attend_vjp", "hadamard", "countsketch", "tensor_sketch", "orthogonalize", *SHORT)

SHOWN = tuple(f"-D{name}=" for name in ["DB", "EB", "MAPS", "HELD", "STREAM", "KEYS", "PARTS", "CHANNELS", "RULE"])


@dataclass(frozen=True)
class Instance:
    op: str
    dtype: str
    map: str
    defines: tuple[str, ...]
    shared_bytes: int

    def __str__(self):
        sizes = "-".join(x[2:].replace("=", "") for x in self.defines if x.startswith(SHOWN))
        return f"{self.op}-{self.dtype}-{self.map}-{sizes}"

    @property
    def uses_tensor_cores(self):
        projects = self.op not in ("features", "features_vjp") or "-DPROJECT=1" in self.defines
        rounded = {"-DOPERAND=bf16_t", "-DOPERAND=half_t", "-DOPERAND=tf32_t"} & set(self.defines)
        return bool(rounded) and self.op not in WITHOUT_PRODUCTS and projects


def map_code(dtype, name, d, limits):
    if name in ("values", "logs"):
        rows = "float64" if dtype == "float64" else "float32"
        return code_of(dtype, None, name == "logs", d, limits, rows)
    spec = MapSpec("elu1") if name == "elementwise" else MapSpec(name, np.zeros((64, d)))
    return code_of(dtype, spec, spec.per_feature, d, limits)


def instances(limits, dtypes=DTYPES, maps=MAPS, sizes=((128, 128),)):
    """For each (d, e) of sizes."""
    found = {}

    def add(op, dtype, name, defines, shared_bytes):
        found.setdefault((op, defines), Instance(op, dtype, name, defines, shared_bytes))

    for dtype in dtypes:
        sketch = countsketch.launch(4096, 1024, 4096, dtype, limits)
        add("countsketch", dtype, "none", sketch.defines, sketch.rows.shared_bytes)
        for num_features in (1024, 4096):
            spectra = tensor_sketch.launch(4096, 1024, num_features, dtype, limits)
            if spectra is not None:
                add("tensor_sketch", dtype, "none", spectra.defines, spectra.shared_bytes)
        frame = orthogonalize.launch(128, 128, dtype, limits)
        add("orthogonalize", dtype, "none", frame.defines, frame.shared_bytes)
        own, taps = C_TYPES[dtype], 4
        for weight in (own, accumulator_of(dtype)):
            add("causal_conv", dtype, "none", causal_conv.launch(4, 4096, 8192, dtype, weight, taps, False).defines, 0)
            add("causal_conv_step", dtype, "none", causal_conv_step.launch(8192, dtype, dtype, weight).defines, 0)
        add("selective_step", dtype, "none", selective_step.launch(8192, dtype, own).defines, 0)
        for d, e in sizes:
            for entries, n in ((64, 4096), (4096, 4096), (64, 1)):
                for channels, rule in product((False, True), (gated.NONE, gated.ALONG, gated.PAIR)):
                    walked = gated.launch(entries, n, d, e, dtype, channels, rule, limits)
                    if walked is not None:
                        add("gated", dtype, "none", walked.kernel.defines, walked.kernel.shared_bytes)
                    if rule != gated.PAIR:
                        split = gated_chunks.launch(entries, n, d, e, dtype, channels, rule == gated.ALONG, limits)
                        if split is not None:
                            most = max(split.code.prepare_bytes, split.code.walk_bytes)
                            add("_gated_chunks", dtype, "none", split.code.defines, most)
                    pulled_back = gated_vjp.launch(entries, d, e, dtype, channels, rule, limits)
                    if pulled_back is not None:
                        add("gated_vjp", dtype, "none", pulled_back[1].defines, pulled_back[1].shared_bytes)
            for all_of_it in (False, True):
                how = block_softmax.launch(d, e, dtype, limits, parts=all_of_it, biased=all_of_it, joined=all_of_it)
                add("block_softmax", dtype, "none", how.defines, how.shared_bytes)
            how = block_softmax.launch(d, e, dtype, limits, parts=False, biased=False, joined=False, many=True)
            add("block_softmax", dtype, "none", how.defines, how.shared_bytes)
            for keys in (False, True):
                for more in (False, True):
                    out = dtype if more or dtype == "float64" else "float32"  # before it was rounded
                    back = block_softmax_vjp.launch(
                        d, e, dtype, keys, not more, limits, parts=more, biased=more, out=out
                    )
                    add("block_softmax_vjp", dtype, "none", back.defines, back.shared_bytes)
            for name in maps:
                code = map_code(dtype, name, d, limits)
                if name not in ("values", "logs"):
                    add("features", dtype, name, code.defines, features.launch(4096, 256, code, limits).shared_bytes)
                    pulled = features_vjp.launch(4096, d, pulled_code(code, d, limits), code.input, True, limits)
                    add("features_vjp", dtype, name, pulled.defines, pulled.shared_bytes)
                if name != "logs":
                    sums = gram.launch(64, 4096, 256, 1, code, limits)
                    add("gram", dtype, name, sums.defines, sums.shared_bytes)
                if name not in ("elementwise", "logs"):
                    chains = replace(
                        code, operand=code.accumulator, project=False, split=False, db=16, warps=hadamard.WARPS
                    )
                    rows = hadamard.launch(4096, 1024, 2, chains, limits)
                    add("hadamard", dtype, name, chains.defines, rows.shared_bytes)
                linear = linear_code(code, dtype, e, limits)
                slabs = Slabs(4, 1024)
                for m in (64, 256):
                    summary = key_state.launch(64, 4096, e, m, linear, slabs, limits)
                    add("key_state", dtype, name, summary.code.defines, summary.shared_bytes)
                add("attend", dtype, name, linear.defines, attend.launch(64, 4096, e, linear).shared_bytes)
                if name not in ("values", "logs"):
                    out = "float64" if dtype == "float64" else "float32"  # before it was rounded
                    add("attend_vjp", dtype, name, attend_vjp.asked(linear, out), 0)
                    for keys in (False, True):
                        way = back_code(code, d, dtype, e, code.input, keys, limits)
                        read = back_launch(64, 4096, way, True, limits)
                        add("key_state_vjp", dtype, name, way.defines, read.shared_bytes)
                        for count in (1, 2):
                            walk = causal_vjp.launch(64, 4096, e, 256, walk_code(way, count, limits), True, limits)
                            add("causal_vjp", dtype, name, walk.code.defines, walk.shared_bytes)
                for m in (64, 128, 256):
                    for count in (1,) if name in ("values", "logs") else (1, 2):
                        walked = causal.walk_code(linear, d, m, limits, count)
                        shared_bytes = causal.launch(64, 4096, e, m, walked, limits).shared_bytes
                        add("causal", dtype, name, walked.defines, shared_bytes)
                token = replace(linear, map=replace(code, warps=step.WARPS))
                add("step", dtype, name, token.defines, step.launch(64, e, token).stream.shared_bytes)
    return list(found.values())


def rounded(limits, maps=MAPS, sizes=((128, 128),)):
    """The instances of float32 whose products are rounded to tf32 on request."""
    with ka.precision("tf32"):
        found = instances(limits, ("float32",), maps, sizes)
    return [replace(x, dtype="tf32") for x in found if "-DOPERAND=tf32_t" in x.defines]
