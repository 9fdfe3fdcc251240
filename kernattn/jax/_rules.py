"""What runs on the host for each op, from its record: its value, what its pullback needs, and the pullback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jax import ShapeDtypeStruct

from kernattn._arrays.namespaces import FLOATS, Array, dtype_name
from kernattn._sums.peaked import PeakedSum
from kernattn.ops.dispatch import Op
from kernattn.ops.record import Record
from kernattn.ops.records import RECORDS


def _way(op: Op, like: Array) -> Callable[..., Any]:
    return op.implementation(like)


def form_of(x: Any) -> Any:
    """Return the form of a cotangent; None of what has none."""
    if x is None:
        return None
    if isinstance(x, tuple):
        return tuple(map(form_of, x))
    return ShapeDtypeStruct(x.shape, x.dtype) if dtype_name(x) in FLOATS else None


@dataclass(frozen=True)
class Rule:
    """An op as JAX calls it: a function of the leaves of its inputs; the constants are a part of the rule."""

    record: Record
    constants: tuple[Any, ...]
    learns: bool  # are numbers of a map among the leaves?
    no_tangents: ClassVar = (
        "compiled loops have no derivatives in forward mode (jvp, jacfwd): backend='reference' has them"
    )
    no_second: ClassVar = (
        "compiled pullbacks have no derivatives: second derivatives need backend='reference', which has all"
    )
    staged: Callable[..., Any] | None = None
    """What is traced for the value in place of a callback."""

    @property
    def apart(self) -> bool:
        """Whether calls that `vmap` makes stay calls of their own: cotangents of numbers are sums over one call."""
        return self.learns

    def results(self, *leaves: Any) -> tuple[Any, ...]:
        """Return the forms of the value."""
        return self._public(self._forms(leaves))

    def forms(self, *leaves: Any) -> tuple[Any, Any]:
        """Return the forms of the value, and of what the pullback needs."""
        forms = self._forms(leaves)
        return self._public(forms), self._select_kept(forms)

    def backward_forms(self, leaves: Any, value: Any, kept: Any, g: Any) -> Any:
        """Return the forms of the cotangents of the leaves."""
        return form_of(tuple(leaves))

    def value(self, *leaves: Any) -> tuple[Any, ...]:
        """Return the leaves of what the op returns."""
        made = self.record.value(_way, self.record.whole(leaves, self.constants))
        outputs = (made,) if len(self.record.outputs) == 1 else made
        parts: list[Any] = []
        for output, each in zip(self.record.outputs, outputs, strict=False):
            if output.kind != "normaliser":
                parts += [each] if output.kind == "array" else each
        return tuple(parts)

    def forward(self, *leaves: Any) -> tuple[Any, Any]:
        """Return the leaves of what the op returns, and those that the pullback needs."""
        made = self.record.output_leaves(self.record.forward(_way, self.record.whole(leaves, self.constants)))
        return self._public(made), self._select_kept(made)

    def backward(self, leaves: Any, value: Any, kept: Any, g: Any) -> tuple[Any, ...]:
        """Return the cotangents of the leaves."""
        record, parts, cotangents = self.record, iter(kept), iter(g)
        outputs, taken = [], []
        for output in record.outputs:
            known = [next(parts) for _ in output.kept_leaves]
            own = [next(cotangents) for _ in output.leaves] if self._is_public(output) else []
            if output.kept:
                outputs.append(output.of(known))
            if output.differentiable:
                taken.append(own[0] if output.kind == "array" else PeakedSum(own[0], own[1], known[-1]))
        inputs = record.whole(leaves, self.constants)
        by_leaf = record.leaf_cotangents(record.backward(_way, self.learns, inputs, tuple(outputs), tuple(taken)))
        return tuple(self._cotangent(x, dx) for x, dx in zip(leaves, by_leaf, strict=True))

    @staticmethod
    def _cotangent(x: Any, dx: Any) -> Any:
        if x is None or dtype_name(x) not in FLOATS:
            return None
        return np.zeros(x.shape, x.dtype) if dx is None else np.asarray(dx, x.dtype)

    def _forms(self, leaves: tuple[Any, ...]) -> list[Any]:
        by_name = dict(zip((leaf.name for leaf in self.record.leaves), leaves, strict=True))
        forms = []
        for form in self.record.forms(leaves, self.constants):
            dtype = np.dtype(by_name[form.dtype_of].dtype)
            wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
            forms.append(ShapeDtypeStruct(form.shape, wide if form.wide else dtype))
        return forms

    @staticmethod
    def _is_public(output: Any) -> bool:
        return bool(output.returned and output.kind != "normaliser")

    def _public(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the leaves of outputs that the op returns without being asked for more."""
        parts = iter(leaves)
        pairs = [(output, next(parts)) for output in self.record.outputs for _ in output.leaves]
        return tuple(x for output, x in pairs if self._is_public(output))

    def _select_kept(self, leaves: list[Any]) -> tuple[Any, ...]:
        named = zip((leaf.name for output in self.record.outputs for leaf in output.leaves), leaves, strict=True)
        by_name = dict(named)
        return tuple(by_name[name] for output in self.record.outputs for name in output.kept_leaves)


@dataclass(frozen=True)
class StepRule(Rule):
    """A step, whose pullback is that of causal attention of one token."""

    def forms(self, *leaves: Any) -> tuple[Any, Any]:
        return self._public(self._forms(leaves)), self._sequence.forms(*_sequence(leaves))[1]

    def forward(self, *leaves: Any) -> tuple[Any, Any]:
        (out, *after), kept = self._sequence.forward(*_sequence(leaves))
        return (np.ascontiguousarray(out[..., 0, :]), *after), kept

    def backward(self, leaves: Any, value: Any, kept: Any, g: Any) -> tuple[Any, ...]:
        cotangents = self._sequence.backward(_sequence(leaves), None, kept, (_token(g[0]), *g[1:]))
        names = [leaf.name for leaf in RECORDS["causal"].leaves]
        by_name = dict(zip(names, cotangents, strict=True))
        by_name |= {name: None if by_name[name] is None else by_name[name][..., 0, :] for name in "qkv"}
        return tuple(
            None if x is None else by_name[leaf.name] for leaf, x in zip(self.record.leaves, leaves, strict=True)
        )

    @property
    def _sequence(self) -> Rule:
        return Rule(RECORDS["causal"], self.constants, self.learns)


def _token(x: Any) -> Any:
    """Return one token (..., d) as a sequence (..., 1, d); None stays."""
    return None if x is None else x[..., None, :]


def _sequence(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the leaves of a step as those of a causal sequence."""
    given = dict(zip((leaf.name for leaf in RECORDS["step"].leaves), leaves, strict=True))
    given |= {name: _token(given[name]) for name in "qkv"}
    given["key_mask"] = None if given["key_mask"] is None else given["key_mask"][..., None]
    return tuple(given.get(leaf.name) for leaf in RECORDS["causal"].leaves)
