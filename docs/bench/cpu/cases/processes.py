"""Functions drawn from a Gaussian process, and independence given others, of many rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.races import Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.features import nystrom
from kernattn.kernels import Matern
from kernattn.solvers import conditional_hsic, gp, moments
from kernattn.solvers._draws import FEATURES

COUNT, LEARNT, LANDMARKS, DIM, GIVEN = 1000, 2000, 500, 4, 3


def draws(o: Sizes) -> Race:
    """A thousand functions drawn on 500 landmarks of 2,000 rows in four dimensions, and their values at new rows."""
    peers.limit_blas()
    learnt, new = normal(o, (min(LEARNT, o.n), DIM), (o.n, DIM))
    phi = nystrom(learnt, Matern(1.5, 1.5), min(LANDMARKS, len(learnt) // 4), rng=o.seed)
    process = gp(moments(learnt, phi, y=np.sin(learnt[:, 0])), noise=0.3, amplitude=1.0)

    def ours() -> Any:
        return process.draw(COUNT, rng=o.seed)(new)

    features = FEATURES + phi.num_features_of(DIM)
    work = Work(float(o.n * COUNT * new.itemsize), 2.0 * o.n * features * COUNT, float(o.n * features))
    return Race({"ours": ours}, work, dim=DIM)


def given_others(o: Sizes) -> Race:
    """The test of independence given three other columns."""
    peers.limit_blas()
    z, e, f = normal(o, (o.n, GIVEN), (o.n, 1), (o.n, 1))
    along = np.sum(z, axis=1, keepdims=True) / np.sqrt(GIVEN)

    def ours() -> Any:
        return conditional_hsic(along + e, np.sin(along) + f, z, rng=o.seed)

    return Race({"ours": ours}, Work(float(o.n * (GIVEN + 2) * z.itemsize)), dim=GIVEN)
