"""Plans that graphs hold by name: they are kept for good, as a graph may run at any time."""

from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernattn._plans.plan import ALL, CAUSAL, Plan
from kernattn.attention._mechanisms.compressed import plan_blocks
from kernattn.attention._mechanisms.window import window_plan
from kernattn.errors import ParameterError

_kept: dict[str, Plan] = {"all": ALL, "causal": CAUSAL}
_names: WeakKeyDictionary[Plan, str] = WeakKeyDictionary({plan: name for name, plan in _kept.items()})


def keep_plan(plan: Plan) -> str:
    """Keep a plan, and return the name of its content."""
    if plan.kind == "window":
        return f"{WINDOW}{plan.n}"
    name = _names.get(plan)
    if name is None:
        name = _names[plan] = f"plan {_content(plan)}"
        _kept.setdefault(name, plan)
    return name


BLOCKS = "blocks "
"""What names of causal plans of blocks of keys begin with; the number of tokens of a block follows."""
WINDOW = "window "
"""What names of plans of a window of any length begin with; the number of its tokens follows."""


def plan_of(name: str, q: Any = None, k: Any = None) -> Plan:
    """Return the plan of that name; of blocks, for these queries and blocks."""
    if name.startswith(BLOCKS) and q is not None:
        n, blocks, factor = q.shape[-2], k.shape[-2], int(name.removeprefix(BLOCKS))
        known = type(n) is int and type(blocks) is int  # else shapes alone are asked for
        return plan_blocks(n, blocks * factor, factor) if known else ALL
    if name.startswith(WINDOW) and q is not None:
        n, length = q.shape[-2], k.shape[-2]
        known = type(n) is int and type(length) is int
        return window_plan(int(name.removeprefix(WINDOW)), n, length) if known else ALL
    if name not in _kept:
        raise ParameterError(
            "the plan of a traced graph is not known in this process, and a graph holds no more of it than a name: "
            "trace a call with the same plan here first, or export with backend='reference'"
        )
    return _kept[name]


def _content(plan: Plan) -> str:
    digest = sha256(f"{plan.n} {plan.length} {[len(parts) for parts in plan.heads]}".encode())
    for array in (array for parts in plan.heads for part in parts for array in part):
        digest.update(b"none" if array is None else f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
