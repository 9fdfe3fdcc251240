"""Train the transformer of `ka.transformer` to draw images, pixel by pixel, with each method of attention.

``python train.py digits`` or ``mnist`` trains what is missing of one task, ``--all`` of both, and a run that was killed
goes on where its last checkpoint was, to the same numbers. A run leaves a record (.json) and its parameters (.npz).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from files import replace
from images import SIDES, Images, load
from methods import METHODS, attention, counting, draw_at
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from kernattn.features import FeatureMap
from kernattn.transformer import Config, forward, initial_params, save_params

HERE = Path(__file__).parent
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """What is trained, and how: the same for every method."""

    name: str
    levels: int
    steps: int
    batch: int
    rate: float
    methods: tuple[str, ...]
    seeds: int
    decay: float  # of weights
    dim: int = 64
    layers: int = 3
    heads: int = 4
    hidden: int = 256
    curve: int = 50  # steps between points of the learning curve
    curve_images: int = 300  # held-out images of such a point

    def config(self) -> Config:
        """Return the config of the model."""
        side = SIDES[self.name]
        return Config(
            dim=self.dim, layers=self.layers, heads=self.heads, hidden=self.hidden, vocab=self.levels,
            positions="axial", grid=(side, side), activation="relu", norm="rms", bias=False,
        )  # fmt: skip


TASKS = {
    "digits": Task(
        "digits", 17, steps=1000, batch=32, rate=4e-3, decay=1.0, seeds=3,
        methods=(
            "softmax", "linear", "favor", "favor-redrawn", "favor-settled", "relu", "smreg", "trigonometric", "lsh",
        ),
    ),
    "mnist": Task(
        "mnist", 256, steps=2000, batch=4, rate=4e-3, decay=0.1, seeds=1, curve=100, curve_images=60,
        methods=("linear", "favor", "softmax", "favor-redrawn", "favor-settled", "lsh"),
    ),
}  # fmt: skip


def shifted(tokens: torch.Tensor) -> torch.Tensor:
    """Return what the model sees where it predicts each token: the one before, and 0 first."""
    return torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], dim=1)


def loss(params: Tensors, config: Config, tokens: torch.Tensor, how: Any) -> torch.Tensor:
    """Return the nats of a token, on average."""
    logits = forward(params, config, shifted(tokens), attention=how)
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1))


def bits(params: Tensors, config: Config, tokens: torch.Tensor, how: Any, batch: int = 20) -> float:
    """Return the bits of a pixel, on average."""
    with torch.no_grad():
        parts = [loss(params, config, part, how).item() * len(part) for part in tokens.split(batch)]
    return float(sum(parts) / len(tokens) / np.log(2))


class Run:
    """One training of one method."""

    def __init__(self, task: Task, method: str, seed: int, folder: Path) -> None:
        self.task, self.method, self.seed, self.config = task, method, seed, task.config()
        self.path = folder / f"{task.name}-{method}-{seed}"
        self.params: Tensors = {
            name: torch.tensor(value, requires_grad=True) for name, value in initial_params(self.config, seed).items()
        }
        self.adam = torch.optim.AdamW(self.params.values(), task.rate, (0.9, 0.98), weight_decay=task.decay)
        self.step, self.seconds = 0, 0.0
        self.curve: list[list[float]] = []

    def draw(self, step: int) -> int:
        """Return which draw a step uses."""
        return draw_at(self.method, step, self.task.steps)

    def attention(self, draw: int) -> Any:
        """Return how heads attend with one draw."""
        return attention(self.method, self.config.head_width, SIDES[self.task.name] ** 2, self.seed, draw)

    def rate(self) -> float:
        """Return the learning rate: it rises over a tenth of the steps, and falls to 0 as a cosine does."""
        done = (self.step + 1) / self.task.steps
        return self.task.rate * min(done / 0.1, 0.5 * (1 + np.cos(np.pi * done)))

    def rows(self, images: int) -> Any:
        """Return which images the next step learns from: all of them in an order of each epoch."""
        epoch, place = divmod(self.step, images // self.task.batch)
        order = np.random.default_rng([self.seed, epoch]).permutation(images)
        return order[place * self.task.batch : (place + 1) * self.task.batch]

    def advance(self, tokens: torch.Tensor) -> float:
        """Take a step of Adam (Loshchilov and Hutter 2019), and return the bits of a pixel before it."""
        start = time.process_time()
        self.adam.param_groups[0]["lr"] = self.rate()
        self.adam.zero_grad()
        value = loss(self.params, self.config, tokens, self.attention(self.draw(self.step)))
        value.backward()
        for parameter in self.params.values():
            if parameter.grad is None:  # LSH has no keys of its own
                parameter.grad = torch.zeros_like(parameter)
        torch.nn.utils.clip_grad_norm_(self.params.values(), 1.0)
        self.adam.step()
        self.step += 1
        self.seconds += time.process_time() - start
        return float(value.item() / np.log(2))

    def save(self) -> None:
        """Write a checkpoint, whole or not at all."""
        arrays = {f"params/{name}": value.detach().numpy() for name, value in self.params.items()}
        for name, value in self.params.items():
            arrays |= {f"{part}/{name}": self.adam.state[value][part].numpy() for part in ("exp_avg", "exp_avg_sq")}
        told = json.dumps([asdict(self.task), self.step, self.seconds, self.curve])
        replace(self.path.with_suffix(".checkpoint.npz"), lambda file: np.savez(file, told=np.array(told), **arrays))

    def load(self) -> None:
        """Go on from a checkpoint of the same task, if there is one."""
        path = self.path.with_suffix(".checkpoint.npz")
        if not path.exists():
            return
        with np.load(path, allow_pickle=False) as found:
            task, step, seconds, curve = json.loads(str(found["told"]))
            if task != json.loads(json.dumps(asdict(self.task))):
                raise SystemExit(f"{path} is of another task: {task}; remove it, or name another folder")
            self.step, self.seconds, self.curve = step, seconds, curve
            for name, value in self.params.items():
                value.data = torch.tensor(found[f"params/{name}"])
                state = {part: torch.tensor(found[f"{part}/{name}"]) for part in ("exp_avg", "exp_avg_sq")}
                self.adam.state[value] = {"step": torch.tensor(float(step))} | state

    def train(self, learnt: Images, held_out: Images) -> dict[str, Any]:
        """Train to the end, and return the record."""
        task, tokens, others = self.task, torch.tensor(learnt.tokens), torch.tensor(held_out.tokens)
        self.load()
        with tqdm(total=task.steps, initial=self.step, desc=self.path.name, unit="step", mininterval=2) as bar:
            while self.step < task.steps:
                seen = self.advance(tokens[self.rows(len(tokens))])
                bar.update()
                if self.step % task.curve == 0 or self.step == task.steps:
                    how = self.attention(self.draw(self.step - 1))
                    new = bits(self.params, self.config, others[: task.curve_images], how)
                    self.curve.append([self.step, round(self.seconds, 1), round(seen, 4), round(float(new), 4)])
                    bar.set_postfix_str(f"{seen:.3f} bits, held out {new:.3f}")
                    self.save()
        return self.record(others)

    def record(self, others: torch.Tensor) -> dict[str, Any]:
        """Return what was reached, and what it is worth with another draw than the last one of training."""
        draw, counts = self.draw(self.task.steps - 1), [(0, 1)]
        how = self.attention(draw)
        reached = fresh = bits(self.params, self.config, others, how)
        if self.method not in ("softmax", "linear"):
            fresh = bits(self.params, self.config, others, self.attention(draw + 1000))
        if isinstance(how, FeatureMap):
            bits(self.params, self.config, others[:20], counting(how, counts))
        return asdict(self.task) | {
            "method": self.method,
            "seed": self.seed,
            "draw": draw,
            "parameters": sum(value.numel() for value in self.params.values()),
            "bits": reached,
            "bits_of_a_new_draw": fresh,
            "share_of_normalisers_at_most_0": float(np.divide(*np.sum(counts, axis=0))),
            "cpu_seconds": round(self.seconds, 1),
            "curve": self.curve,
        }

    def finish(self, record: dict[str, Any]) -> None:
        """Write parameters, then the record, and remove the checkpoint."""
        save_params(self.params, self.config, self.path.with_suffix(".npz"), dtype="float16")
        text = json.dumps(record, indent=1)
        replace(self.path.with_suffix(".json"), lambda file: file.write(text.encode()))
        self.path.with_suffix(".checkpoint.npz").unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", choices=TASKS)
    parser.add_argument("--all", action="store_true", help="both tasks")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="of the task's by default all")
    parser.add_argument("--seeds", nargs="+", type=int, help="of the task's by default all")
    parser.add_argument("--out", type=Path, default=HERE / "trained", help="folder of records and parameters")
    given = parser.parse_args(arguments)
    if (given.task is None) != given.all:
        parser.error("name a task, digits or mnist, or give --all")
    torch.set_num_threads(1)
    os.environ["KERNATTN_NUM_THREADS"] = "1"
    given.out.mkdir(parents=True, exist_ok=True)
    for task in TASKS.values() if given.all else [TASKS[given.task]]:
        learnt, held_out = load(task.name)
        for seed in given.seeds or range(task.seeds):
            for method in given.methods or task.methods:
                run = Run(task, method, seed, given.out)
                if not run.path.with_suffix(".json").exists():
                    run.finish(run.train(learnt, held_out))


if __name__ == "__main__":
    main()
