"""Take the trained softmax model of digits over to linear attention, without training it anew.

``python transfer.py`` fits maps to its attention (`ka.transformer.transfer`, half a minute of CPU time for a window),
trains ten steps on, 1 % of those of a training, and prints a table: the bits of a held-out pixel with softmax, with
FAVOR+ in its place, with the maps, and with each after the steps. Maps that were fitted lie in ``--folder``.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from images import SIDES, load
from methods import FEATURES, attention
from tqdm import tqdm
from train import HERE, TASKS, bits, loss, shifted

from kernattn.transformer import Config, load_params, transfer

SHARE = 0.01  # of the steps of a training
RATE = 1e-4  # of the steps after a swap
DRAWS = 3  # of FAVOR+


def train_on(params: dict[str, Any], config: Config, tokens: torch.Tensor, how: Any, steps: int) -> dict[str, Any]:
    """Return parameters after some steps of Adam, whose rate falls to 0."""
    task = TASKS["digits"]
    kept = {name: value.clone().requires_grad_() for name, value in params.items()}
    adam = torch.optim.Adam(kept.values(), RATE, (0.9, 0.98))
    order = np.random.default_rng([1, 0]).permutation(len(tokens))
    for step in range(steps):
        adam.param_groups[0]["lr"] = RATE * (1 - step / steps)
        adam.zero_grad()
        loss(kept, config, tokens[order[step * task.batch : (step + 1) * task.batch]], how).backward()
        adam.step()
    return {name: value.detach() for name, value in kept.items()}


def run(folder: Path, windows: list[int], images: int, steps: int, features: int = FEATURES) -> list[dict[str, Any]]:
    """Return a row for each attention: its bits without training, and after the steps."""
    path = HERE / "trained" / "digits-softmax-0.npz"
    numbers, config = load_params(path, "float32")
    params = {name: torch.tensor(value) for name, value in numbers.items()}
    learnt, held_out = load("digits")
    tokens, others = torch.tensor(learnt.tokens), torch.tensor(held_out.tokens[:images])
    width, length = config.head_width, SIDES["digits"] ** 2
    ways: list[tuple[str, Any]] = [("softmax", None)]
    ways += [(f"FAVOR+, draw {i}", attention("favor", width, length, i, 0, features)) for i in range(DRAWS)]
    seen = [shifted(tokens).numpy()]
    for window in windows:
        moved = transfer(
            numbers,
            config,
            seen,
            features,
            window=window,
            folder=folder / f"digits-{features}-{window}",
            rng=0,
            progress=None,
        )
        tqdm.write(f"{moved}\n")
        ways.append(("fitted maps" + f", window {window}" * bool(window), moved))
    rows = []
    for name, how in tqdm(ways, desc="train on", disable=None):
        trained = train_on(params, config, tokens, how, steps)
        after = bits(trained, config, others, how)
        rows.append({"attention": name, "bits": bits(params, config, others, how), "after": after})
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=HERE / "transferred", help="where the maps are kept")
    parser.add_argument("--windows", nargs="*", type=int, default=[0, 8], help="tokens of exact attention")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    os.environ["KERNATTN_NUM_THREADS"] = "1"
    steps = round(SHARE * TASKS["digits"].steps)
    rows = run(given.folder, given.windows, 300, steps)
    linear, config = load_params(HERE / "trained" / "digits-linear-0.npz", "float32")
    others = torch.tensor(load("digits")[1].tokens)
    from_the_start = bits(
        {name: torch.tensor(value) for name, value in linear.items()}, config, others, attention("linear", 16, 64, 0, 0)
    )
    print(f"| attention | bits | after {steps} steps |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {row['attention']} | {row['bits']:.3f} | {row['after']:.3f} |")
    print(f"| linear, trained from the start | {from_the_start:.3f} | |")


if __name__ == "__main__":
    main()
