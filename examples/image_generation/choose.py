"""Settings that were tried on digits: each learns from the images to learn from but 200, which judge it.

``python choose.py`` trains what `tried.jsonl` lacks, a minute or two each. Held-out images are not looked at.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from files import replace as replace_file
from images import SIDES, Images, load
from methods import FEATURES, REDRAW, attention
from tqdm import tqdm
from train import HERE, TASKS, Run, bits

__all__ = ["SETTINGS", "TRIED", "Setting", "split", "tried"]

TRIED = HERE / "tried.jsonl"
JUDGES = 200  # images


@dataclass(frozen=True)
class Setting:
    """What is tried: steps between draws, and the share of training after which the last draw stays."""

    method: str = "softmax"
    rate: float = TASKS["digits"].rate
    decay: float = TASKS["digits"].decay
    features: int = FEATURES
    redraw: int = REDRAW
    settled: float = 1.0


SETTINGS = (
    Setting(),
    *(Setting(rate=rate) for rate in (2e-3, 8e-3)),
    *(Setting(decay=decay) for decay in (0.3, 3.0)),
    Setting("favor"),
    Setting("favor-redrawn", redraw=1),
    Setting("favor-redrawn", redraw=1, features=256),
    Setting("favor-redrawn", features=256),
    Setting("favor-redrawn", redraw=200),
    *(Setting("favor-redrawn", settled=share) for share in (0.5, 0.25)),
)


def split(learnt: Images) -> tuple[Images, Images]:
    """Return the images that a setting learns from, and those that judge it."""
    return Images(*(part[JUDGES:] for part in learnt)), Images(*(part[:JUDGES] for part in learnt))


class Trial(Run):
    """A training of digits with a setting."""

    def __init__(self, setting: Setting, steps: int) -> None:
        task = replace(TASKS["digits"], rate=setting.rate, decay=setting.decay, steps=steps)
        super().__init__(task, setting.method, 0, HERE)
        self.setting = setting

    def draw(self, step: int) -> int:
        """Return which draw a step uses."""
        last = int(self.setting.settled * self.task.steps) - 1
        return min(step, last) // self.setting.redraw if self.method == "favor-redrawn" else 0

    def attention(self, draw: int) -> Any:
        """Return how heads attend with one draw."""
        width, tokens = self.config.head_width, SIDES[self.task.name] ** 2
        return attention(self.method, width, tokens, self.seed, draw, self.setting.features)


def tried(setting: Setting, learnt: Images, judges: Images, steps: int = TASKS["digits"].steps) -> dict[str, Any]:
    """Return a setting, and the bits of a pixel that it reached, with the last draw and with a new one."""
    run = Trial(setting, steps)
    tokens, others = torch.tensor(learnt.tokens), torch.tensor(judges.tokens)
    for _ in tqdm(range(steps), desc=str(setting), mininterval=2):
        run.advance(tokens[run.rows(len(tokens))])
    last = run.draw(steps - 1)
    reached = [bits(run.params, run.config, others, run.attention(draw)) for draw in (last, last + 1000)]
    return asdict(setting) | {"bits": reached[0], "bits_of_a_new_draw": reached[1], "cpu_seconds": round(run.seconds)}


def main() -> None:
    torch.set_num_threads(1)
    os.environ["KERNATTN_NUM_THREADS"] = "1"
    parts = split(load("digits")[0])
    rows = [json.loads(row) for row in TRIED.read_text(encoding="utf-8").splitlines()] if TRIED.exists() else []
    found = {Setting(**{field.name: row[field.name] for field in fields(Setting)}): row for row in rows}
    for setting in SETTINGS:
        if setting not in found:
            found[setting] = tried(setting, *parts)
        text = "".join(json.dumps(found[each]) + "\n" for each in SETTINGS if each in found)
        replace_file(TRIED, lambda file, text=text: file.write(text.encode()))


if __name__ == "__main__":
    main()
