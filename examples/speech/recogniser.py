"""CTC from frames: an encoder with any attention of the library, or a bidirectional LSTM of about its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from bilstm import BiLSTM
from corpus import Utterance
from numpy.typing import NDArray
from phonemes import BLANK, PHONEMES, greedy
from sound import MELS
from torch import Tensor

import kernattn as ka
from kernattn.transformer import Config, forward, initial_params

METHODS = "softmax", "linear", "lsh-4", "bi-lstm"
STACKED, STEP = 8, 3
CHUNK = 16


class Batch(NamedTuple):
    """Utterances of unequal length."""

    rows: Tensor  # (b, n, inputs), zeros behind the last row
    there: Tensor  # (b, n), where a row is
    labels: Tensor  # (all,), one utterance after another
    counts: Tensor  # (b,), labels of each


def stacked(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of 8 neighbouring frames, one at every third frame: (n, 40) to (about n / 3, 320)."""
    windows = np.lib.stride_tricks.sliding_window_view(frames, STACKED, axis=0)[::STEP]
    return np.ascontiguousarray(np.moveaxis(windows, -1, 1)).reshape(len(windows), -1)


def batch(said: Sequence[Utterance]) -> Batch:
    each = [torch.from_numpy(stacked(one.frames)) for one in said]
    lengths = torch.tensor([len(rows) for rows in each])
    return Batch(
        torch.nn.utils.rnn.pad_sequence(each, batch_first=True),
        torch.arange(int(lengths.max())) < lengths[:, None],
        torch.tensor([label for one in said for label in one.phonemes]),
        torch.tensor([len(one.phonemes) for one in said]),
    )


def batches(said: Sequence[Utterance], size: int, rng: np.random.Generator | None = None) -> Iterator[Batch]:
    """Yield batches of utterances of about one length, in random order where there is a generator."""
    order = np.argsort([len(one.frames) for one in said], kind="stable")
    groups = np.array_split(order, range(size, len(order), size))
    for i in range(len(groups)) if rng is None else rng.permutation(len(groups)):
        yield batch([said[j] for j in groups[i]])


def ctc(logits: Tensor, given: Batch) -> Tensor:
    """Return the negative log likelihood a phoneme, over all ways to place them among blanks (Graves et al. 2006)."""
    scores, lengths = logits.log_softmax(-1).transpose(0, 1), given.there.sum(-1)
    total = torch.nn.functional.ctc_loss(scores, given.labels, lengths, given.counts, blank=BLANK, reduction="sum")
    return total / int(given.counts.sum())


class Recogniser:
    """Logits of phonemes from stacked frames; its parameters are a dictionary of tensors."""

    def __init__(self, method: str, dim: int, layers: int, seed: int) -> None:
        self.method, self.rng = method, np.random.default_rng(seed)
        inputs, classes = STACKED * MELS, 1 + len(PHONEMES)
        if method == "bi-lstm":
            torch.manual_seed(seed)
            self.lstm = BiLSTM(inputs, dim, layers)
            width, self.params = 2 * dim, dict(self.lstm.named_parameters())
        else:
            self.config = Config(
                dim=dim, layers=layers, heads=dim // 32, inputs=inputs, positions="sinusoidal", causal=False,
                output=None, activation="relu",
            )  # fmt: skip
            drawn = initial_params(self.config, seed)
            width, self.params = dim, {name: torch.tensor(value) for name, value in drawn.items()}
            self.attention = {
                "softmax": None,
                "linear": ka.features.elu1(),
                "lsh-4": self.hashed,
            }[method]
        weights = np.random.default_rng([seed, 1]).standard_normal((width, classes)) * width**-0.5
        self.params["classes.weight"] = torch.tensor(weights, dtype=torch.float32)
        self.params["classes.bias"] = torch.zeros(classes)
        for value in self.params.values():
            value.requires_grad_()

    def hashed(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, key_mask: Tensor) -> Tensor:
        """Return Reformer's attention of four rounds, with new rotations at every call: queries are the keys."""
        rotations = self.rng.standard_normal((4, q.shape[-1], max(1, round(q.shape[-2] / CHUNK / 2))))
        return ka.attention.lsh_attention(
            q, v, rotations=rotations.astype(np.float32), chunk=CHUNK, causal=causal, key_mask=key_mask
        )

    def logits(self, given: Batch) -> Tensor:
        """Return (b, n, 1 + phonemes)."""
        ends = "classes.weight", "classes.bias"
        if self.method == "bi-lstm":
            rows = self.lstm(given.rows, given.there)
        else:
            params = {name: value for name, value in self.params.items() if name not in ends}
            rows = forward(params, self.config, given.rows, attention=self.attention, key_mask=given.there)
        return rows @ self.params[ends[0]] + self.params[ends[1]]

    def loss(self, given: Batch) -> Tensor:
        """Return CTC's negative log likelihood a phoneme."""
        return ctc(self.logits(given), given)

    def said(self, given: Batch) -> list[list[int]]:
        """Return the phonemes of each utterance by greedy decoding."""
        with torch.no_grad():
            best = self.logits(given).argmax(-1)
        return [greedy(path[there].tolist()) for path, there in zip(best, given.there, strict=True)]
