"""A sweep that is quick: the eyes of dice. Worker processes find it as `dice:sweep` and `dice:cast`."""

import os
import time

from kernattn.studies import Stop, Sweep

__all__ = ["cast", "sweep"]


def trial(cell, rng):
    time.sleep(float(os.environ.get("DICE_SECONDS", "0")))
    eyes = 1.0 + rng.integers(cell["faces"], size=cell["dice"])
    return {"mean": eyes.mean(), "ordered": [eyes.min(), eyes.max()]}


def facts(cell):
    return {"expected": (1 + cell["faces"]) / 2, "threads": os.environ.get("OPENBLAS_NUM_THREADS", "")}


def cast(faces=(6, 20), dice=(3, 5), draws=4, **more):
    """Return a sweep over dice; `how` is a paired axis."""
    axes = {"faces": tuple(faces), "how": ("left", "right"), "dice": tuple(dice)}
    return Sweep("dice", axes, trial, facts, paired=("how",), along={"end": (0.0, 1.0)}, stop=Stop(draws), **more)


sweep = cast()
