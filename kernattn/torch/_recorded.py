"""Public functions of tensors that are differentiated: NumPy's arrays run, and the op that was called is recorded."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernattn._arrays.bridge import CannotLend
from kernattn._arrays.door import Door, Own
from kernattn._arrays.replay import Call, Replay, Witness, as_it_is
from kernattn._maps.kinds import KINDS
from kernattn.ops.dispatch import Op
from kernattn.torch._functions import apply_recorded
from kernattn.torch._ops import TORCH_OPS, TorchOp

DIFFERENTIABLE = {name for name, kind in KINDS.items() if kind.pull is not None}
SEEN = torch._C._functorch.is_functorch_wrapped_tensor


class Tape(Witness):
    """Stands for a backend in one call of a public function, which calls one op."""

    op: TorchOp
    places: list[int]  # of the tensors, among the leaves
    rest: tuple[Any, ...]  # what follows the leaves: maps, plans and numbers, and the backend

    def __init__(self, door: Door, own: Own, backend: str | None, narrow: bool) -> None:
        self._door, self._own, self._backend, self._narrow = door, own, backend, narrow
        self.arrays: list[Any] = []  # of the outputs

    def implementation(self, op: Op) -> Callable[..., Any]:
        """Return a function that runs the op, once, and notes its arguments and outputs."""
        if op.name not in TORCH_OPS or self.arrays:
            raise CannotLend(f"nothing is recorded of {op.name}")
        self.op = TORCH_OPS[op.name]
        return self._run

    def _run(self, *arguments: Any) -> Any:
        record = self.op.record
        given, options = arguments[: len(record.inputs)], arguments[len(record.inputs) :]
        if options and options[-1] is True:  # normalisers have no cotangents
            raise CannotLend("normalisers are asked for")
        for at in record.maps_at:
            if getattr(given[at], "kind", None) not in DIFFERENTIABLE:
                raise CannotLend("the map has no gradient")
        leaves, constants = record.flat(given)
        self.places, self.rest = [at for at, x in enumerate(leaves) if x is not None], (*constants, self._backend)
        try:
            self.tensors = [self._own[id(leaves[at])] for at in self.places]
        except KeyError:
            raise CannotLend("an array was computed of those that were given") from None
        if any(map(SEEN, self.tensors)):
            raise CannotLend("torch.func has seen it")
        outputs = record.forward(self._way, given)
        self.arrays = record.output_leaves(outputs)
        return record.drop_unasked(outputs)

    def _way(self, op: Op, like: Any) -> Callable[..., Any]:
        if not op.can_lend(self._door.library, self._backend):
            raise CannotLend(f"{op.name} does not run on what is lent")
        return op.function(self._door.library.backend)

    def make_tensors(self) -> list[Tensor]:
        """Return the outputs' leaves as tensors."""
        return self._door.give_back_all(self.arrays, self._narrow, None)

    def apply(self) -> Own:
        """Return the outputs that are returned, as tensors that PyTorch differentiates, by their arrays."""
        made = apply_recorded(self, *self.tensors)
        return dict(zip([id(self.arrays[at]) for at in self.op.returned_at], made, strict=True))


def call_recorded(
    door: Door,
    own: Own,
    replay: Replay,
    call: Call | None,
    lent: list[Any],
    named: dict[str, Any],
    narrow: bool,
) -> Any:
    """Call a public function with arrays that stand for tensors, one of which is differentiated."""
    tape = Tape(door, own, named.get("backend"), narrow)
    result = NotImplemented
    if call is not None:
        if (known := replay.recall(call)) is None:
            result = replay.note_call(call, lent, named, tape.implementation)
        else:
            result = known.code(replay.look(tape.implementation(known.op)), call.arrays, known.constants, as_it_is)
    if result is NotImplemented:
        result = replay.function(*lent, **{**named, "backend": tape})
    return door.give_back(result, narrow, tape.apply())
