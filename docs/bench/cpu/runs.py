"""The runs of a page: what each table holds, on how many threads and by which vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.cpu.cases.decoding import DECODERS
from bench.cpu.cases.edges import FEW_TOKENS
from bench.cpu.cases.gradients import GRADIENTS
from bench.cpu.cases.halves import HALVES
from bench.cpu.cases.libraries import LIBRARIES
from bench.cpu.cases.patterns import PATTERNS
from kernattn.ops._numba.codegen.registers import VECTOR


@dataclass(frozen=True)
class Run:
    """Arguments of `kernattn bench`, on so many threads (default all), by loops and peers held to AVX2 or not."""

    arguments: str
    threads: int | None = None
    avx2: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """What is set for it, beside what is set already."""
        variables = {} if self.threads is None else dict.fromkeys(_THREADS, str(self.threads))
        return variables | (held_to_avx2() if self.avx2 else unheld())

    def __str__(self) -> str:
        threads = "" if self.threads is None else f"KERNATTN_NUM_THREADS={self.threads} "
        return f"{'AVX2 ' if self.avx2 else ''}{threads}kernattn bench {self.arguments}"


_THREADS = ("KERNATTN_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def unheld() -> dict[str, str]:
    """Return what lets OpenBLAS use AVX-512 where it does not know the processor and would not."""
    return {"OPENBLAS_CORETYPE": "SkylakeX"} if VECTOR == 64 else {}


def held_to_avx2() -> dict[str, str]:
    """Return what holds every compiler and library of the races to AVX2."""
    features = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    return {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+f16c,+fma",
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in features if "512" in name or name == "X86_V4"),
    }


def _everywhere(*arguments: str, threads: Sequence[int] = (2, 1)) -> tuple[Run, ...]:
    """Return runs on both numbers of threads, by the machine's own vectors and, where these are wider, by AVX2."""
    widths = (False, True) if VECTOR == 64 else (False,)
    return tuple(Run(each, count, avx2) for avx2 in widths for count in threads for each in arguments)


_WHOLE = "--rounds 5 --cases softmax softmax-causal causal-elu1 causal-favor full-favor"
_BACKWARD = " ".join(name for name in GRADIENTS if name.startswith("backward-"))
_AGAINST_TORCH = "--rounds 3 --cases gradients-causal-elu1 gradients-causal-favor --n 4096 16384"
_SOFTMAX = "--rounds 3 --cases gradients-softmax gradients-softmax-causal"
_FOR_SOFTMAX = "--rounds 3 --cases gradients-elu1-for-softmax gradients-favor-for-softmax --n 16384"
_GATED = "gated-delta gated-channels-delta gated-scan gated-lightning gated-decay gated-channels"
_GATED_BACK = "gated-delta-both-ways gated-lightning-both-ways gated-scan-both-ways"
_PATTERNS = f"--rounds 5 --cases {' '.join(PATTERNS)}"
_STEPS = ("--rounds 7 --cases step step-in-place --heads 256", "--rounds 7 --cases step step-in-place")
_PRODUCTS = "kernel-product kernel-product-of-itself kernel-products"
_DTYPES = ("float32", "float64")
_MODELS = {"qwen3-next": (32, 128), "kimi-linear": (32, 128), "mamba2": (80, 64), "minimax": (64, 128)}  # heads and dim
_STREAMS = ((1_000_000, 256), (300_000, 1024), (30_000, 4096))  # rows and features

PARTS: dict[str, tuple[Run, ...]] = {
    "attention": _everywhere(_WHOLE),
    "asleep": _everywhere("--rounds 5 --asleep --cases causal-elu1 causal-favor full-favor", threads=(2,)),
    "steps": _everywhere(*_STEPS),
    "short": (Run("--rounds 5 --cases causal-elu1 causal-favor full-favor --n 1 16 64 256"),),
    "lengths": (Run("--rounds 3 --cases causal-elu1 --n 16384"), Run("--rounds 3 --cases one-head causal-strided")),
    "maps": (Run("--rounds 3 --cases causal-two-maps full-two-maps"),),
    "backward": _everywhere(f"--rounds 5 --cases {_BACKWARD}"),
    "gradients": (
        *_everywhere(_AGAINST_TORCH),
        Run(_AGAINST_TORCH.replace("--cases", "--asleep --cases"), 2),
        *(Run(each, count) for each in (_SOFTMAX, _FOR_SOFTMAX) for count in (2, 1)),
    ),
    "patterns": _everywhere(_PATTERNS, threads=(1,)),
    "pattern-lengths": (Run("--rounds 3 --cases pattern-local --n 16384", 1),),
    "layers": tuple(
        Run(f"--rounds 5 --cases layer-{name} layer-{name}-step --heads {heads} --dim {dim}", 1)
        for name, (heads, dim) in _MODELS.items()
    ),
    "gated": tuple(Run(f"--rounds 3 --cases {_GATED} --n 512 --dim {dim} --heads 8", 1) for dim in (64, 128)),
    "gated-both-ways": tuple(
        Run(f"--rounds 3 --cases {_GATED_BACK} --n {n} --dim 64 --heads 8", 1) for n in (512, 4096)
    ),
    "gated-steps": tuple(
        Run(f"--rounds 7 --cases gated-step --heads {heads} --dim {dim}", 1) for heads, dim in ((8, 64), (32, 128))
    ),
    "halves": _everywhere(
        f"--rounds 5 --cases {' '.join(name for name in HALVES if name.split('-')[1] not in ('step', 'decode'))}",
        threads=(1,),
    ),
    "halves-steps": _everywhere("--rounds 15 --cases half-step-elu1 half-step-favor", threads=(1,)),
    "halves-short": _everywhere(
        "--rounds 15 --cases half-softmax half-softmax-causal half-causal-elu1 --heads 64 --n 64", threads=(1,)
    ),
    "halves-decode": _everywhere("--rounds 5 --cases half-decode-1 half-decode-16 half-decode-32", threads=(1,)),
    "lsh": _everywhere("--rounds 3 --cases lsh", threads=(1,)),
    "libraries": (Run(f"--rounds 3 --cases {' '.join(LIBRARIES)}"),),
    "edges": tuple(Run(f"--rounds 3 --cases {' '.join(names)}", 1) for names in FEW_TOKENS.values()),
    "features": (
        Run("--rounds 3 --cases gaussian-features hadamard-features tensor-sketch gram"),
        Run("--rounds 3 --cases gaussian-features hadamard-features tensor-sketch gram --dtype float64"),
        *((Run("--rounds 3 --cases gaussian-features tensor-sketch", avx2=True),) if VECTOR == 64 else ()),
    ),
    "fingerprints": (
        Run("--rounds 3 --cases tanimoto sketched-tanimoto sketched-tanimoto-series tanimoto-matrix", 1),
        Run("--rounds 3 --cases tanimoto-many", 1),
        Run("--rounds 3 --dtype float64 --cases tanimoto-csr tanimoto-csr-counts", 1),
    ),
    "kernels": tuple(
        Run(f"--rounds 3 --cases kernel-gaussian kernel-laplacian kernel-polynomial --dim {dim} --dtype {dtype}", 1)
        for dim in (8, 64)
        for dtype in _DTYPES
    ),
    "data": (Run("--rounds 3 --cases digits patches"), Run("--rounds 3 --cases digits patches --dtype float64")),
    "compiled": (Run("--rounds 3 --cases compiled-causal-elu1 compiled-full-favor"),),
    "choices": (
        Run("--rounds 5 --cases product-64-64-64 product-256-48-64 product-256-64-48 product-48-64-256", 1),
        Run("--rounds 3 --cases transforms chains-drawn", 1),
        Run("--rounds 3 --cases orthogonalize --dtype float64", 1),
        *(Run(f"--rounds 3 --cases chains tensor-srht causal-hadamard --dim {dim}", 1) for dim in (64, 128)),
    ),
    "start": (Run("--start"),),
    "sums": (
        *_everywhere("--rounds 5 --cases gram", "--rounds 5 --cases gram --dtype float64", threads=(1,)),
        *(Run(f"--rounds 3 --cases gram --dtype {t} --features {m}", 1) for m in (1024, 4096) for t in _DTYPES),
    ),
    "solvers": (
        *_everywhere("--rounds 5 --cases ridges two-samples", threads=(1,)),
        Run("--rounds 3 --cases ridges two-samples --features 1024", 1),
        Run("--rounds 3 --cases ridges-diamonds ridges-flights", 1),
    ),
    "learned": tuple(Run(f"--rounds 1 --cases learned-{name}", 1) for name in ("diamonds", "flights")),
    "landmarks": tuple(Run(f"--rounds 2 --cases {name} --features 1000", 1) for name in ("cg", "cg-flights")),
    "exact": (Run("exact", 2),),
    "kernel-products": tuple(
        run
        for d in (8, 64)
        for t in _DTYPES
        for run in _everywhere(f"--rounds 3 --cases {_PRODUCTS} --dim {d} --dtype {t}", threads=(1,))
    ),
    "stream": (
        Run("--stream", 2),
        *(Run(f"--stream --rows {rows} --features {features}", 1) for rows, features in _STREAMS),
    ),
    "decoder": _everywhere(f"--rounds 7 --cases {' '.join(DECODERS)}", threads=(1,)),
    "prefixes": (Run("--rounds 3 --cases prefixes", 1),),
    "generate": (
        *_everywhere(*(f"generate --n {steps}" for steps in (784, 3072)), threads=(1,)),
        Run("generate --n 12288", 1),
    ),
    "scaling": (Run("--scaling"),),
    "scaling-backward": (Run("--scaling --backward"),),
}
"""Tables by name, and the runs whose rows they hold; "machine" and "targets" follow from these."""
