"""The corpus: python examples/speech/corpus.py says 1,200 sentences of random words, and keeps their frames.

Six voices; two of them are heard in the test alone. The sound is made anew from seeds and not kept in the repository.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sound import log_mel, noisy, spoken
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
KEPT = HERE.parents[1] / "build" / "speech"
VOICES = {"train": ("m1", "m3", "f2", "f4"), "seen": ("m1", "m3", "f2", "f4"), "unseen": ("m7", "f5")}
SIZES = {"train": 1000, "seen": 80, "unseen": 120}


class Utterance(NamedTuple):
    """What was said."""

    frames: NDArray[np.float32]  # (n, 40)
    phonemes: list[int]


def utterance(words: Sequence[str], voices: Sequence[str], rng: np.random.Generator) -> Utterance:
    """Return 10 to 20 random words in a random voice, speed and noise, of 600 to 1,000 frames."""
    while True:
        text = " ".join(rng.choice(words, rng.integers(10, 21)))
        samples, rate, phonemes = spoken(text, str(rng.choice(voices)), int(rng.integers(110, 151)))
        frames = log_mel(noisy(samples, rng.uniform(5, 25), rng.uniform(0, 1.5), rng), rate)
        if 600 <= len(frames) <= 1000:
            return Utterance(frames, phonemes)


def made(split: str, size: int) -> list[Utterance]:
    """Return the utterances of a split, which do not depend on those of others."""
    rng = np.random.default_rng([16, list(VOICES).index(split)])
    words = (HERE / "words.txt").read_text(encoding="utf-8").split()
    return [utterance(words, VOICES[split], rng) for _ in tqdm(range(size), desc=split)]


def corpus(split: str, folder: Path = KEPT) -> list[Utterance]:
    """Return a split, made and kept where it is not there yet."""
    path = folder / f"{split}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        spoken_now = made(split, SIZES[split])
        frames = np.concatenate([each.frames for each in spoken_now]).astype(np.float16)
        told = json.dumps([[len(each.frames), each.phonemes] for each in spoken_now])
        unfinished = path.with_suffix(".tmp.npz")
        np.savez(unfinished, frames=frames, told=told)
        unfinished.replace(path)
    with np.load(path) as kept:
        frames, told = kept["frames"].astype(np.float32), json.loads(str(kept["told"]))
    ends = np.cumsum([length for length, _ in told])
    return [Utterance(rows, phonemes) for rows, (_, phonemes) in zip(np.split(frames, ends[:-1]), told, strict=True)]


if __name__ == "__main__":
    for split in SIZES:
        said = corpus(split)
        lengths, labels = [len(each.frames) for each in said], [len(each.phonemes) for each in said]
        print(
            f"{split}: {len(said)} utterances, {min(lengths)} to {max(lengths)} frames (mean {np.mean(lengths):.0f}), "
            f"{np.mean(labels):.0f} phonemes each"
        )
