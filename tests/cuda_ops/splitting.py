"""The error of bfloat16 features and causal outputs on the emulation, with frequencies in two parts and in one.

PYTHONPATH=tests python -m cuda_ops.splitting, in a clone of the repository: root mean squares against float64.
"""

import sys
from dataclasses import replace

import numpy as np

import kernattn as ka
import oracles
from cuda_on_cpu.cupy_stand_in import fake

sys.modules |= fake()
import cupy  # noqa: E402

from cuda_ops.cases import array, features_of, to64  # noqa: E402
from kernattn.ops._cuda import linear, maps  # noqa: E402
from kernattn.ops.causal.gpu import causal  # noqa: E402
from kernattn.ops.features import gpu as features  # noqa: E402

N, D, E, M = 130, 64, 32, 64


def error(found, wanted):
    """The root mean square of the difference, over that of what is wanted."""
    return float(np.sqrt(np.mean((to64(found) - wanted) ** 2) / np.mean(wanted**2)))


def main():
    """Print a line for every length of rows and number of parts."""
    whole, rng = maps.map_code, np.random.default_rng(0)
    spec = ka.random_features(ka.kernels.Softmax(), D, M, rng=1).spec
    x = rng.normal(size=(2, 2, N, D)) * D**-0.25
    v = array(cupy, rng.normal(size=(2, N, E)), "bfloat16")
    may = oracles.allowed(N, N, causal=True)
    for length in (1, 2):
        q, k = (array(cupy, length * rows, "bfloat16") for rows in x)
        phi = [features_of(to64(rows), spec) for rows in (q, k)]
        wanted, _ = oracles.linear_attention(*phi, to64(v), may)
        for parts in (2, 1):

            def code(*given, parts=parts):
                return replace(whole(*given), split=parts == 2)

            linear.map_code = features.map_code = code
            of_features = error(features.features(q, spec), phi[0].values)
            of_outputs = error(causal(q, k, v, spec, spec, None, None, None, False)[0], wanted)
            print(f"rows x {length}, {parts} parts: features {of_features:.1e}, outputs {of_outputs:.1e}", flush=True)


if __name__ == "__main__":
    main()
