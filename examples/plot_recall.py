"""
Training attention to recall the values of keys
===============================================

A sequence pairs keys with values; a question names one of the keys, and its value is the answer. To give it, a model
has to attend to that key: uniform attention knows how often values occur, and nothing else. Keys have fixed random
embeddings here, so what a model learns is the embeddings of values, a layer that reads the answer, and, in one case,
the frequencies of the features.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn.functional import cross_entropy

import kernattn as ka
from kernattn.torch import FavorAttention, LinearAttention

KEYS, VALUES, PAIRS, QUESTIONS, DIM, FEATURES = 32, 8, 16, 8, 16, 16


class Uniform(nn.Module):
    """Attention to all keys alike."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return the average value for each query."""
        return v.mean(-2, keepdim=True).expand(*q.shape[:-1], v.shape[-1])


def favor(seed: int, learnable: bool) -> FavorAttention:
    return FavorAttention(ka.kernels.Softmax(), DIM, FEATURES, learnable=learnable, seed=seed)


ATTENTIONS: dict[str, Callable[[int], nn.Module]] = {
    "uniform": lambda seed: Uniform(),
    "elu(x) + 1": lambda seed: LinearAttention(),
    "fixed features": lambda seed: favor(seed, learnable=False),
    "learnt features": lambda seed: favor(seed, learnable=True),
}


class Recall(nn.Module):
    """Answers to questions for values of keys, by one head."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.keys = nn.Embedding(KEYS, DIM)
        self.keys.requires_grad_(False)
        self.values = nn.Embedding(VALUES, DIM)
        self.answer = nn.Linear(DIM, VALUES)

    def forward(self, keys: torch.Tensor, values: torch.Tensor, questions: torch.Tensor) -> torch.Tensor:
        """Return the scores of all values, for each question."""
        q, k, v = (x.unsqueeze(1) for x in (self.keys(questions), self.keys(keys), self.values(values)))
        return self.answer(self.attention(q, k, v).squeeze(1))


def sequences(generator: torch.Generator, batch: int = 32) -> tuple[torch.Tensor, ...]:
    keys = torch.rand(batch, KEYS, generator=generator).argsort(1)[:, :PAIRS]
    values = torch.randint(VALUES, (batch, PAIRS), generator=generator)
    asked = torch.randint(PAIRS, (batch, QUESTIONS), generator=generator)
    return keys, values, keys.gather(1, asked), values.gather(1, asked)


def losses(
    attention: str, seed: int, steps: int, compiled: dict[str, Any] | None = None, low: bool = False
) -> list[float]:
    """Losses of the steps of training; `compiled` holds what `torch.compile` takes, and `low` asks for bfloat16."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Recall(ATTENTIONS[attention](seed))
    run = model if compiled is None else torch.compile(model, **compiled)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    found = []
    for _ in range(steps):
        keys, values, questions, answers = sequences(generator)
        with torch.autocast("cpu", dtype=torch.bfloat16) if low else nullcontext():
            loss = cross_entropy(run(keys, values, questions).flatten(0, 1).float(), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def run(quick: bool = False) -> None:
    steps = 40 if quick else 300
    _, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for attention in ATTENTIONS:
        axes.plot(losses(attention, 0, steps), label=attention, linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss", title=f"{FEATURES} features, {PAIRS} pairs of {KEYS} keys")
    axes.legend()


if __name__ == "__main__":
    run()
    plt.show()
