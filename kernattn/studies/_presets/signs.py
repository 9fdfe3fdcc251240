"""Whether features may be negative: attention's normalisers then come near 0, and errors have no mean."""

from __future__ import annotations

from kernattn._maps.kinds import KINDS
from kernattn.features import FeatureMap


def is_signed(phi: FeatureMap) -> bool:
    """Return whether features of this map may be negative: all but exponentials count as such."""
    return phi.query_spec is None or not KINDS[phi.query_spec.kind].per_feature
