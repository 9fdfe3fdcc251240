"""The lengthscale that labels prefer, by the log loss on rows left out."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64
from kernattn.kernels import Stationary
from kernattn.sklearn._candidates import Candidate, line_to_try, on_one_thread, times_longer
from kernattn.solvers._losses.logistic_penalty import hold_out

FACTORS = (1.0, 2.0, 4.0, 8.0)  # of the usual lengthscale
BESIDE_LINE = (1.0, 2.0, 4.0)  # the same where a line is beside the kernel


def tune_by_log_loss(
    kernel: Stationary,
    x: Array,
    labels: NDArray[Any],
    weights: Float64 | None,
    intercept: bool,
    linear: bool | None,
    alone: bool = True,
) -> Candidate:
    """Return the candidate with the least log loss on rows left out: 1, 2, 4 or 8 times the kernel's own lengthscale.

    A line is beside the kernel where `linear` says so. None tries both, and the line where it may be `alone`: it is
    taken where the others gain no more than log n over the n rows that differ: by Schwarz (1978) half of it for each of
    two numbers, a lengthscale and the part of the kernel. Of classes that are apart, what is less says nothing.
    """
    classes, line = np.unique(labels), line_to_try(x, weights, linear)
    tried = [Candidate(times_longer(kernel, by), line if linear else None) for by in FACTORS]
    if linear is None and line is not None:
        tried += [Candidate(times_longer(kernel, by), line) for by in BESIDE_LINE]
        tried += [Candidate(None, line)] if alone else []
    with on_one_thread():
        choices = [hold_out(x, labels, weights, each.small_map(x.shape[1]), classes, intercept) for each in tried]
    losses, rows = [choice.loss for choice in choices], choices[0].rows
    best = int(np.argmin(losses))  # NaN of all stands for the first
    told = tried[-1].kernel is not None or (losses[-1] - losses[best]) * rows > np.log(rows)
    return tried[best if told or np.isnan(losses[best]) else -1]
