"""CPU seconds of a training step by length: python examples/speech/timing.py, on a machine that does nothing else.

Methods take turns on one random utterance; the median over rounds goes to records/timing.json.
"""

from __future__ import annotations

import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KERNATTN_NUM_THREADS", "1")

import numpy as np
import torch
from phonemes import PHONEMES
from recogniser import METHODS, STACKED, Batch, Recogniser
from sound import MELS
from tqdm import tqdm
from train import RECORDS, settings_of, write

LENGTHS = {250: 15, 1000: 7, 4000: 3}
"""Rows of an utterance, and rounds."""


def random_batch(n: int, rng: np.random.Generator) -> Batch:
    """Return one utterance of n rows and n / 6 phonemes."""
    rows = rng.standard_normal((1, n, STACKED * MELS)).astype(np.float32)
    labels = rng.integers(1, 1 + len(PHONEMES), size=n // 6)
    return Batch(
        torch.from_numpy(rows), torch.ones(1, n, dtype=torch.bool), torch.from_numpy(labels), torch.tensor([n // 6])
    )


def timed(rounds_of: dict[int, int]) -> list[dict[str, float | str]]:
    """Return the median seconds of a loss and its gradients, for each method and length."""
    rng, rows, models = np.random.default_rng(0), [], {}
    for method in METHODS:
        settings = settings_of(method, 0.0, 0)
        models[method] = Recogniser(method, settings["dim"], settings["layers"], 0)
        models[method].loss(random_batch(64, rng)).backward()  # compiles what is not yet compiled
    for n, rounds in rounds_of.items():
        taken: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in tqdm(range(rounds), desc=f"n = {n}"):
            for method, model in models.items():
                given, began = random_batch(n, rng), time.process_time()
                model.loss(given).backward()
                taken[method].append(time.process_time() - began)
        rows += [{"n": n, "method": method, "seconds": float(np.median(taken[method]))} for method in METHODS]
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = timed(LENGTHS)
    write(RECORDS / "timing.json", json.dumps(found, indent=1) + "\n")
    for row in found:
        print(row)
