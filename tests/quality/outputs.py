"""What a page shows of an output against what its code prints: equal words, and numbers as near as machines are."""

from __future__ import annotations

import re
from collections import Counter

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
TIMED = re.compile(rf"{NUMBER.pattern} (?:ms|s|times as fast)\b")


def words(text: str) -> Counter[str]:
    """The words of an output without its numbers, in any order."""
    return Counter(re.findall(r"[A-Za-z]\w+", NUMBER.sub(" ", text)))


def numbers(text: str) -> list[tuple[float, float]]:
    """The numbers of an output, each with half a unit of its last digit; no times."""
    found = []
    for each in NUMBER.findall(TIMED.sub(" ", text)):
        digits = each.replace(",", "").rstrip("%")
        mantissa, _, exponent = digits.partition("e")
        places = len(mantissa.partition(".")[2])
        found.append((float(digits), 0.5 * 10.0 ** (int(exponent or 0) - places)))
    return found


def differences(printed: str, shown: str, within: float) -> list[str]:
    """What differs: words, or numbers by more than a part of themselves and a unit of their last digit."""
    if words(printed) != words(shown) or len(numbers(printed)) != len(numbers(shown)):
        return [f"{printed!r} is not {shown!r}"]
    return [
        f"{found} is not {told}"
        for (found, unit), (told, _) in zip(numbers(printed), numbers(shown), strict=True)
        if abs(found - told) > within * abs(told) + 2 * unit
    ]
