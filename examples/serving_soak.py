"""
Sessions that come and go for a long time
=========================================

What a batch costs whose sessions join and leave at random, and whether each gets what it would get alone.

``python serving_soak.py`` steps 256 sessions of 8 heads, d = 64, in one batch. A session joins after a prompt
(`ka.put_states`), takes a token with each step, and leaves at random. The sum of its outputs and its state are then
compared with `ka.causal_linear_attention` of its own tokens alone; where they differ, the command ends with an error.
A step of a batch that nobody joins or leaves is timed between.

100,000 steps take half an hour on two busy cores; ``--steps 2000`` shows the same in a minute.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

import kernattn as ka

POOL = 4096  # tokens that sessions read, each from a place of its own
PROMPT = 32  # the longest
TOLERANCE = 1e-4  # of float32 sums of some hundred tokens


class Soak:
    """A batch of sessions; all arrays have the row of a session first."""

    def __init__(self, sessions: int, heads: int, dim: int, length: float, rng: np.random.Generator) -> None:
        self.phi, self.length, self.rng = ka.features.elu1(), length, rng
        self.pool = rng.standard_normal((3, POOL, heads, dim)).astype(np.float32)
        self.batch = ka.initial_state(self.phi, (sessions, heads), dim, like=self.pool)
        self.total = np.zeros((sessions, heads, dim), np.float32)  # of a session's outputs
        self.first, self.prompt, self.taken = (np.zeros(sessions, int) for _ in range(3))
        self.joins: list[float] = []
        self.worst, self.left = 0.0, 0
        for row in range(sessions):
            self.join(row)

    def tokens(self, first: int, count: int) -> np.ndarray:
        """Return the next tokens (q, k, v) of one session, heads before tokens."""
        return np.moveaxis(self.pool[:, (first + np.arange(count)) % POOL], 1, 2)

    def join(self, row: int) -> None:
        """Let a new session take a row, after its prompt."""
        self.first[row], self.prompt[row] = self.rng.integers(POOL), self.rng.integers(1, PROMPT + 1)
        self.taken[row], self.total[row] = 0, 0
        _, k, v = self.tokens(self.first[row], self.prompt[row])
        begin = perf_counter()
        self.batch = ka.put_states(self.batch, row, ka.key_state(k, v, self.phi), reuse_state=True)
        self.joins.append(perf_counter() - begin)

    def leave(self, row: int) -> None:
        """Compare what a session got with its own tokens alone."""
        count = self.prompt[row] + self.taken[row]
        out, state = ka.causal_linear_attention(*self.tokens(self.first[row], count), self.phi)
        total = out[:, self.prompt[row] :].sum(axis=1, dtype=np.float64)
        mine = ka.take_states(self.batch, int(row))
        unit = np.exp(mine.peak - state.peak)  # of sums: a batch has peaks of its own
        for found, wanted in ((self.total[row], total), (unit[..., None] * mine.s, state.s), (unit * mine.z, state.z)):
            self.worst = max(self.worst, float(np.abs(found - wanted).max() / np.abs(wanted).max()))
        self.left += 1
        if not self.worst <= TOLERANCE:
            raise AssertionError(f"session {self.left} differs from its own run by {self.worst:.1e}")

    def step(self) -> float:
        """Take a token of every session, and return the seconds that it took."""
        at = (self.first + self.prompt + self.taken) % POOL
        q, k, v = (part[at] for part in self.pool)
        begin = perf_counter()
        out, self.batch = ka.linear_attention_step(self.batch, q, k, v, self.phi, reuse_state=True)
        seconds = perf_counter() - begin
        self.total += out
        self.taken += 1
        return seconds

    def turn(self) -> None:
        """Let sessions leave, each with the same probability, and others take their rows."""
        for row in np.flatnonzero((self.rng.random(len(self.first)) < 1 / self.length) & (self.taken > 0)):
            self.leave(row)
            self.join(row)


def soak(steps: int, sessions: int, heads: int = 8, dim: int = 64, length: float = 200.0) -> dict[str, float]:
    """Return what was measured."""
    rng = np.random.default_rng(0)
    busy, still = Soak(sessions, heads, dim, length, rng), Soak(sessions, heads, dim, length, rng)
    for each in (busy, still):
        each.step()  # compiled, and its state touched
        each.joins.clear()
    times: tuple[list[float], list[float]] = [], []
    for count in range(steps):
        busy.turn()
        times[0].append(busy.step())
        if count % 10 == 0:
            still.step()  # its state has to be where the other's is: in cache, or not
            times[1].append(still.step())
            busy.step()
    for row in range(sessions):
        busy.leave(row)
    (half, late), (still_half, still_late) = (1e3 * np.percentile(each, [50, 99]) for each in times)
    return {
        "sessions that left": busy.left,
        "largest difference from their own runs": busy.worst,
        "a step, median ms": half,
        "a step, 99th percentile": late,
        "a step where nobody joins, median ms": still_half,
        "a step where nobody joins, 99th percentile": still_late,
        "ratio of medians": half / still_half,
        "ratio of 99th percentiles": late / still_late,
        "a join, median ms": 1e3 * float(np.median(busy.joins)) if busy.joins else 0.0,
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=256)
    asked = parser.parse_args()
    for name, value in soak(asked.steps, asked.sessions).items():
        print(f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main()
