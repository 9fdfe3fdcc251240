"""Phonemes: eSpeak NG's allophones folded to 40 classes, greedy CTC decoding, and the error rate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

FOLDED = {
    "b": "b", "d": "d", "f": "f", "g": "g", "h": "hh", "j": "y", "k": "k", "l": "l", "m": "m", "n": "n", "p": "p",
    "r": "r", "s": "s", "t": "t", "v": "v", "w": "w", "z": "z", "D": "dh", "N": "ng", "S": "sh", "T": "th", "Z": "zh",
    "dZ": "jh", "tS": "ch", "t#": "dx", "t2": "t", "?": "t", "r-": "r", "n-": "ah n", "@L": "ah l",
    "i": "iy", "i:": "iy", "I": "ih", "I2": "ih", "I#": "ih", "E": "eh", "a": "ae", "aa": "ae", "V": "ah", "@": "ah",
    "@2": "ah", "@5": "ah", "a#": "ah", "0#": "ah", "3": "er", "3:": "er", "A:": "aa", "0": "aa", "O": "ao", "O:": "ao",
    "O2": "ao", "U": "uh", "u": "uw", "u:": "uw", "eI": "ey", "aI": "ay", "OI": "oy", "aU": "aw", "oU": "ow",
    "A@": "aa r", "O@": "ao r", "o@": "ao r", "e@": "eh r", "U@": "uh r", "i@3": "iy r", "i@": "iy ah",
    "aI@": "ay ah", "aI3": "ay er",
}  # fmt: skip
"""eSpeak NG's mnemonics of American English, and the ARPAbet's phonemes that stand for them; dx is a flap."""

PHONEMES = sorted({phoneme for folded in FOLDED.values() for phoneme in folded.split()})
BLANK = 0
"""CTC's blank; phonemes are 1, 2, ..."""


def folded(mnemonics: str) -> list[int]:
    """Return the phonemes of what ``espeak-ng -x --sep=_`` prints; marks of stress, length and linking are dropped."""
    found = []
    for mnemonic in mnemonics.replace("_", " ").split():
        mnemonic = mnemonic.lstrip("',%=!")
        if mnemonic.strip(":;|-"):
            if mnemonic not in FOLDED:
                raise ValueError(f"the mnemonic {mnemonic!r} is in no class; FOLDED lists those known")
            found += [1 + PHONEMES.index(phoneme) for phoneme in FOLDED[mnemonic].split()]
    return found


def greedy(best: Sequence[int]) -> list[int]:
    """Return what a path of the best class of each row says: runs count once, and blanks are dropped."""
    return [label for label, _ in groupby(best) if label != BLANK]


def edits(said: Sequence[int], meant: Sequence[int]) -> int:
    """Return the Levenshtein distance: the fewest insertions, deletions and substitutions."""
    at = np.arange(len(meant) + 1)
    row = at
    for i, label in enumerate(said, 1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (np.asarray(meant) != label))
        # an insertion to the right costs one a step: a running minimum of what stands to the left, less its place
        row = np.minimum.accumulate(np.append(i, changed) - at) + at
    return int(row[-1])


def error_rate(said: Sequence[Sequence[int]], meant: Sequence[Sequence[int]]) -> float:
    """Return the phoneme error rate in per cent: edits of all utterances over phonemes of all."""
    return 100 * sum(map(edits, said, meant)) / sum(map(len, meant))
