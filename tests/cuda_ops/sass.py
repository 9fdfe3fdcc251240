"""What a kernel is made of once it is assembled: its instructions, and its loops with what they multiply."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

LABEL = re.compile(r"^(\.L_\w+):")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(@\S+\s+)?([A-Z][\w.]*)\s*(.*?);")
TARGET = re.compile(r"`\((\.L_\w+)\)")


@dataclass(frozen=True)
class Instruction:
    name: str
    operands: str
    predicated: bool


@dataclass(frozen=True)
class Loop:
    """A natural loop, the loops inside it included; both sides of its branches are counted."""

    depth: int  # how many loops it lies in
    instructions: int
    products: int  # HMMA
    own_products: int  # that no inner loop holds

    def __str__(self) -> str:
        return f"{self.instructions} / {self.products} = {self.instructions / self.products:.1f}"


def disassembler() -> str | None:
    """The path of nvdisasm, which a wheel brings, or None."""
    found = find_spec("nvidia")
    for root in (found.submodule_search_locations if found else None) or ():
        for path in Path(root).glob("*/bin/nvdisasm"):
            return os.fspath(path)
    return shutil.which("nvdisasm")


def listing(cubin: bytes, kernel: str) -> str:
    """The text of a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        text = subprocess.run([disassembler(), "-c", path], capture_output=True, text=True, check=True).stdout
    return text.split(f"\n.text.{kernel}:\n")[1].split("\n//-----")[0]


def parse(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions, and which of them each label stands before; what pads the end is none."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label.group(1)] = len(found)
        elif (each := INSTRUCTION.match(line)) and each.group(2) != "NOP":
            found.append(Instruction(each.group(2), each.group(3), each.group(1) is not None))
    return found, labels


def followers(instructions: list[Instruction], labels: dict[str, int]) -> list[list[int]]:
    """Which instructions may come next."""
    found = []
    for i, x in enumerate(instructions):
        name = x.name.split(".")[0]
        jump = TARGET.search(x.operands) if name in ("BRA", "CALL") else None  # within a kernel a call is a jump
        goes_on = x.predicated or not (name in ("EXIT", "RET") or (jump and x.operands.startswith("`")))
        found.append([i + 1] * (goes_on and i + 1 < len(instructions)) + ([labels[jump.group(1)]] if jump else []))
    return found


def loops(text: str) -> list[Loop]:
    """The loops that multiply, outermost first."""
    instructions, labels = parse(text)
    comes_before: list[list[int]] = [[] for _ in instructions]
    bodies: dict[int, set[int]] = {}
    nexts = followers(instructions, labels)
    for i, after in enumerate(nexts):
        for j in after:
            comes_before[j].append(i)
    for i, after in enumerate(nexts):
        for head in (j for j in after if j <= i):
            body, open_ends = bodies.setdefault(head, {head}), [i]
            while open_ends:
                at = open_ends.pop()
                if at not in body and at >= head:
                    body.add(at)
                    open_ends += comes_before[at]

    def products(body: set[int]) -> int:
        return sum(instructions[i].name.startswith("HMMA") for i in body)

    found = []
    for _, body in sorted(bodies.items()):
        inside = set().union(*(other for other in bodies.values() if other < body))
        depth = sum(body < other for other in bodies.values())
        found.append(Loop(depth, len(body), products(body), products(body - inside)))
    return [loop for loop in found if loop.products]
