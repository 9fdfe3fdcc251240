"""The process that fits a kernel regression exactly: its argument says how many rows and to which tolerances."""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np

from bench.cpu.stream_child import peak
from kernattn.kernels import Matern
from kernattn.solvers import kernel_ridge
from kernattn.studies import flights

KERNEL, PENALTY, NEW = Matern(1.5, lengthscale=12.0), 0.1, 10_000


def run(given: dict[str, Any]) -> None:
    """Say of each tolerance what the fit took and how far off it is."""
    part = flights().split(given["rows"], NEW, rng=0)
    KERNEL.matmul(part.x[:64], None, part.y[:64, None])  # loads the loops
    fit, steps, start, used = None, 0, perf_counter(), process_time()
    for tolerance in given["tolerances"]:
        fit = kernel_ridge(part.x, part.y, KERNEL, penalty=PENALTY, exact=True, tolerance=tolerance, start=fit, rng=0)
        steps += fit.iterations
        took = {"seconds": perf_counter() - start, "cpu_seconds": process_time() - used, "peak_bytes": peak()}
        error = fit.predict(part.new_x) - part.new_y
        told = {"rows": len(part.x), "dim": part.x.shape[1], "tolerance": tolerance, "landmarks": len(fit.landmarks)}
        told |= {"steps": steps, "residual": float(fit.residuals[-1, 0])}
        told |= {"squared_error": float(np.mean(error**2)), "median_error": float(np.median(np.abs(error)))}
        print(json.dumps(told | took), flush=True)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
