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
from recogniser import METHODS, STACKED, Batch, Recogniser, ctc
from sound import MELS
from tqdm import tqdm
from train import RECORDS, settings_of, write

LENGTHS = {250: 31, 1000: 11, 4000: 5}
"""Rows of an utterance, and rounds."""


def random_batch(n: int, rng: np.random.Generator) -> Batch:
    """Return one utterance of n rows and n / 6 phonemes."""
    rows = rng.standard_normal((1, n, STACKED * MELS)).astype(np.float32)
    labels = rng.integers(1, 1 + len(PHONEMES), size=n // 6)
    return Batch(
        torch.from_numpy(rows), torch.ones(1, n, dtype=torch.bool), torch.from_numpy(labels), torch.tensor([n // 6])
    )


def timed(rounds_of: dict[int, int]) -> list[dict[str, float | str]]:
    """Return the median seconds of a loss and its gradients by length, for each method and for CTC alone."""
    rng, rows = np.random.default_rng(0), []
    contestants = {method: model_of(method).loss for method in METHODS} | {"ctc": ctc_alone}
    for contestant in contestants.values():
        contestant(random_batch(64, rng)).backward()  # compiles what is not yet compiled
    for n, rounds in rounds_of.items():
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in tqdm(range(rounds), desc=f"n = {n}"):
            for name, contestant in contestants.items():
                given, began = random_batch(n, rng), time.process_time()
                contestant(given).backward()
                taken[name].append(time.process_time() - began)
        rows += [{"n": n, "method": name, "seconds": float(np.median(times))} for name, times in taken.items()]
    return rows


def model_of(method: str) -> Recogniser:
    settings = settings_of(method, 0.0, 0)
    return Recogniser(method, settings["dim"], settings["layers"], 0)


def ctc_alone(given: Batch) -> torch.Tensor:
    """Return the loss of logits that are there already."""
    return ctc(torch.zeros(*given.there.shape, 1 + len(PHONEMES), requires_grad=True), given)


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = timed(LENGTHS)
    write(RECORDS / "timing.json", json.dumps(found, indent=1) + "\n")
    for row in found:
        print(row)
