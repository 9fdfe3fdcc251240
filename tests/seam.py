"""What ops take and give back. Tests of ops name it by this file alone: where one of these moves, one import does."""

from kernattn._maps.chains import Chains
from kernattn._maps.kinds import KINDS
from kernattn._plans.plan import ALL, CAUSAL
from kernattn._sums.peaked import Normaliser, PeakedSum, empty
from kernattn.features import MapSpec, QuadraticForm, ScaledFeatures

__all__ = [
    "ALL",
    "CAUSAL",
    "KINDS",
    "PULLED",
    "Chains",
    "MapSpec",
    "Normaliser",
    "PeakedSum",
    "QuadraticForm",
    "ScaledFeatures",
    "empty",
]
PULLED = [name for name, kind in KINDS.items() if kind.pull is not None]  # the kinds that have a derivative
