"""Files forged at random: one of all known ways, or bytes changed anywhere."""

from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import forge
import kernattn as ka
import saved
from fuzz.rounds import fuzz

SAVED = Path(saved.__file__).parent / "features" / "saved_by_0_1"


@dataclass(frozen=True)
class Forgery:
    """A file that was changed."""

    kind: str
    what: str
    name: str
    make: object = field(repr=False)

    size = 1


@cache
def _ways(name, kind):
    return list(forge.KINDS[kind](*forge.unpacked(SAVED / f"{name}.npz")))


def _scattered(name, places):
    content = bytearray((SAVED / f"{name}.npz").read_bytes())
    for at, value in places:
        content[at % len(content)] = value
    return bytes(content)


def drawn(rng):
    name, kind = str(rng.choice(list(saved.MAKERS))), str(rng.choice([*forge.KINDS, "bytes"]))
    if kind == "bytes":
        places = [(int(rng.integers(2**31)), int(rng.integers(256))) for _ in range(rng.integers(1, 5))]
        return Forgery(kind, str(places), name, partial(_scattered, name, places))
    what, make = _ways(name, kind)[rng.integers(len(_ways(name, kind)))]
    return Forgery(kind, what, name, make)


def test_forged_files(tmp_path):
    for name in saved.MAKERS:  # what is imported at first is no cost of a forgery
        ka.load(SAVED / f"{name}.npz")

    def checked(case):
        wrong = forge.verdict(tmp_path / "map.npz", case.make, forge.inputs(case.name))
        assert wrong is None, wrong

    fuzz(__file__, drawn, checked, cases=100)
