"""Memory of generation against the number of steps: the state of linear attention, and keys and values of exact one.

A model of the size that draws MNIST, of random weights and without a limit to its positions, draws 2^10, 2^11, ...
tokens. What a step reads of earlier tokens is told by its decoder, and the peak of the process by the system.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
from typing import Any

import numpy as np

import kernattn as ka
from kernattn.transformer import Config, Decoder, generate, initial_params

CONFIG = Config(dim=64, layers=3, heads=4, vocab=256, positions="sinusoidal", activation="relu", norm="rms", bias=False)
MOST = {"linear": 16, "softmax": 13}  # exponents of the most steps: with keys and values they cost their square


def measure(kind: str) -> list[dict[str, Any]]:
    """Return bytes of state and of the whole process after 2^10, 2^11, ... steps."""
    params, start = initial_params(CONFIG, rng=0), np.zeros((1, 1), np.int64)
    phi = ka.features.elu1() if kind == "linear" else None
    decoder, rows, unit = Decoder(params, CONFIG, attention=phi), [], 1 if sys.platform == "darwin" else 1024
    decoder.prefill(start)
    for exponent in range(10, MOST[kind] + 1):
        drawn = generate(params, CONFIG, start, 2**exponent, attention=phi, rng=0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        for token in drawn[0, drawn.shape[1] // 2 if rows else 0 :]:
            decoder.step(np.array([token]))
        rows.append({"attention": kind, "steps": 2**exponent, "state": decoder.nbytes, "peak": peak})
    return rows


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for rows in pool.imap(measure, MOST, chunksize=1):
            print(*map(json.dumps, rows), sep="\n", flush=True)
