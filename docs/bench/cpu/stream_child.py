"""The process that adds up the moments of a file: its argument says which and how, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn.features import random_features
from kernattn.kernels import Gaussian
from kernattn.solvers import Moments, accumulate, moments


def run() -> None:
    """Say the blocks that are read, and at the end what the sums took and are."""
    given = json.loads(sys.argv[1])
    x, y = (np.load(f"{given['folder']}/{name}.npy", mmap_mode="r") for name in "xy")
    phi = random_features(Gaussian(lengthscale=x.shape[1] ** 0.5), x.shape[1], given["features"], rng=0)
    moments(x[:16], phi, y=y[:16])  # loads the loops

    def blocks() -> Iterator[tuple[Array, Array]]:
        nonlocal x, y
        for i, first in enumerate(range(0, len(x), given["block"])):
            if not given["once"]:
                x, y = (np.load(f"{given['folder']}/{name}.npy", mmap_mode="r") for name in "xy")
            print(json.dumps({"block": i}), flush=True)
            yield x[first : first + given["block"]], y[first : first + given["block"]]

    start, used = perf_counter(), process_time()
    m = accumulate(blocks(), phi, checkpoint=given["checkpoint"], every=given["every"])
    times = {"seconds": perf_counter() - start, "cpu_seconds": process_time() - used}
    print(json.dumps(times | {"peak_bytes": peak(), "digest": digest(m)}))


def peak() -> int:
    """Return the most memory that was resident, in bytes: what a process inherits does not count, where Linux tells."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def digest(m: Moments) -> str:
    """Return what tells sums apart by their bits."""
    sums = (np.float64(m.weight), m.s, m.gram, m.cross, m.y_sum, m.y_gram)
    return blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in sums)).hexdigest()


if __name__ == "__main__":
    run()
