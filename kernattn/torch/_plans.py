"""Plans in graphs: an op takes a plan by the name of its content."""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from kernattn._plans.plan import ALL, CAUSAL, Plan
from kernattn.errors import ParameterError

Named: TypeAlias = Plan | str
"""A plan, or its name."""

_kept: dict[str, Plan] = {"all": ALL, "causal": CAUSAL}  # those that graphs name, which may run at any time
_names: WeakKeyDictionary[Plan, str] = WeakKeyDictionary({plan: name for name, plan in _kept.items()})


def keep_plan(plan: Named) -> str:
    """Return the name by which ops find a plan, which is kept for good."""
    if isinstance(plan, str):
        return plan
    name = _names.get(plan)
    if name is None:
        name = _names[plan] = f"plan {_content(plan)}"
        _kept.setdefault(name, plan)
    return name


def plan_of(plan: Named) -> Plan:
    """Return the plan of that name."""
    found = _kept.get(plan) if isinstance(plan, str) else plan
    if found is None:
        raise ParameterError(
            "the plan of a traced graph is not known in this process, and a graph holds no more of it than a name"
        )
    return found


def _content(plan: Plan) -> str:
    found = sha256(f"{plan.n} {plan.length} {[len(parts) for parts in plan.heads]}".encode())
    for array in (array for parts in plan.heads for part in parts for array in part):
        found.update(b"none" if array is None else f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
