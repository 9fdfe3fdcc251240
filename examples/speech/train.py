"""Train a recogniser: python examples/speech/train.py METHOD [--rate RATE] [--seed SEED].

Each epoch adds to records/METHOD-RATE-SEED.json, and is where a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KERNATTN_NUM_THREADS", "1")

import numpy as np
import torch
from corpus import HERE, KEPT, Utterance, corpus
from phonemes import error_rate
from recogniser import CHUNK, METHODS, STACKED, STEP, Recogniser, batches
from tqdm import tqdm

RECORDS = HERE / "records"
SETTINGS: dict[str, Any] = {
    "epochs": 4, "batch": 8, "dim": 64, "layers": 3, "warmup": 100,
    "stacked": STACKED, "step": STEP, "chunk": CHUNK,
}  # fmt: skip
SIZES = {"bi-lstm": {"dim": 40}}
"""What a method has of its own, so that the models are of about one size."""


def settings_of(method: str, rate: float, seed: int) -> dict[str, Any]:
    return {"method": method, "rate": rate, "seed": seed, **SETTINGS, **SIZES.get(method, {})}


def rate_at(settings: dict[str, Any], done: float, step: int) -> float:
    """Return the step size: a warm-up, and a straight line to 5 per cent of the peak."""
    return settings["rate"] * min(1.0, (step + 1) / settings["warmup"]) * (1 - 0.95 * done)


def evaluated(model: Recogniser, said: Sequence[Utterance], size: int) -> float:
    """Return the phoneme error rate in per cent."""
    found, meant = [], []
    for given in batches(said, size):
        found += model.said(given)
        meant += [labels.tolist() for labels in given.labels.split(given.counts.tolist())]
    return error_rate(found, meant)


class Training:
    """A model, its optimiser, and what was measured after each epoch."""

    def __init__(self, settings: dict[str, Any], kept: Path) -> None:
        self.settings, self.kept = settings, kept
        self.model = Recogniser(settings["method"], settings["dim"], settings["layers"], settings["seed"])
        self.adam = torch.optim.Adam(self.model.params.values(), settings["rate"], betas=(0.9, 0.98))
        self.epochs: list[dict[str, float]] = []
        if kept.exists():
            self._resume()

    def epoch(self, said: Sequence[Utterance]) -> dict[str, float]:
        """Take all utterances once; return the mean loss a phoneme and the CPU seconds."""
        number, settings, losses = len(self.epochs), self.settings, []
        self.model.rng = np.random.default_rng([settings["seed"], number])
        steps, began = -(-len(said) // settings["batch"]), time.process_time()
        shown = tqdm(batches(said, settings["batch"], self.model.rng), total=steps, desc=f"epoch {number + 1}")
        for i, given in enumerate(shown):
            done = (number + i / steps) / settings["epochs"]
            self.adam.param_groups[0]["lr"] = rate_at(settings, done, number * steps + i)
            self.adam.zero_grad()
            loss = self.model.loss(given)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.params.values(), 1.0)
            self.adam.step()
            losses.append(loss.item())
            shown.set_postfix(loss=f"{np.mean(losses[-20:]):.3f}")
        return {"loss": float(np.mean(losses)), "cpu_seconds": time.process_time() - began}

    @property
    def size(self) -> int:
        """The number of parameters that gradients reach: hashed attention has no keys of its own."""
        return sum(value.numel() for value in self.model.params.values() if value.grad is not None)

    def keep(self) -> None:
        """Write the parameters, the optimiser's means and the measures to the file, whole or not at all."""
        arrays: dict[str, Any] = {"told": json.dumps({"settings": self.settings, "epochs": self.epochs})}
        for name, value in self.model.params.items():
            arrays[f"value:{name}"] = value.detach().numpy()
            for part, mean in self.adam.state.get(value, {}).items():
                arrays[f"{part}:{name}"] = mean.numpy()
        unfinished = self.kept.with_suffix(".tmp.npz")
        np.savez(unfinished, **arrays)
        unfinished.replace(self.kept)

    def _resume(self) -> None:
        with np.load(self.kept) as arrays:
            told = json.loads(str(arrays["told"]))
            if told["settings"] != self.settings:
                raise SystemExit(f"{self.kept} is of other settings, {told['settings']}; remove it to begin anew")
            self.epochs = told["epochs"]
            for name, value in self.model.params.items():
                value.data.copy_(torch.from_numpy(arrays[f"value:{name}"]))
                parts = "step", "exp_avg", "exp_avg_sq"
                if f"step:{name}" in arrays:
                    self.adam.state[value] = {part: torch.tensor(arrays[f"{part}:{name}"]) for part in parts}


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--rate", type=float, default=1e-2, help="the largest step size of Adam")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = {split: corpus(split) for split in ("train", "seen", "unseen")}
    name = f"{given.method}-{given.rate:g}-{given.seed}"
    training = Training(settings_of(given.method, given.rate, given.seed), KEPT / f"{name}.npz")
    RECORDS.mkdir(exist_ok=True)
    while len(training.epochs) < training.settings["epochs"]:
        measured = training.epoch(data["train"])
        for split in ("seen", "unseen"):
            measured[split] = evaluated(training.model, data[split], training.settings["batch"])
        training.epochs.append(measured)
        training.keep()
        record = {"settings": training.settings, "parameters": training.size, "epochs": training.epochs}
        write(RECORDS / f"{name}.json", json.dumps(record, indent=1) + "\n")
        print({key: round(value, 3) for key, value in measured.items()}, flush=True)


if __name__ == "__main__":
    main()
