"""Sharing a loop of tens of microseconds: helpers wait awake, and take their part without the interpreter.

A helper that sleeps wakes after the work is done, and so does one that has to wait for the interpreter's lock. One that
watches a board sees at once what its caller puts there: the address of a compiled function, and that of its arguments,
which lie on the caller's stack until everybody has left them.
"""

import os
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from kernattn._runtime.parallel import stand_by, threads, worth_sharing
from kernattn.ops._numba.codegen.compile import compiled, inner, intrinsic

PLACE = 16  # integers: two lines of a cache, which are fetched together
OWNER, TURN, TAKEN, LAST, INSIDE, WATCHERS, FUNCTION, ARGUMENTS, SLABS, COUNT, PLACES = (i * PLACE for i in range(11))
"""Where on a board what stands; a turn is odd while a loop is shared."""

PATIENCE = 8192  # pauses of the processor that a helper watches for: what comes again comes sooner
SOON = 2e-4  # seconds from one loop to the next for which helpers are sent for
ARRIVAL = 2e-3  # seconds after which they are sent for again
EACH = 8e-6  # seconds of work for each thread that make its part worth handing over
SLABS_PER_THREAD = 2

_ORDER = "seq_cst"
_INTEGER = ir.IntType(64)
_SLAB = ir.FunctionType(ir.VoidType(), [_INTEGER] * 3)  # of the address of its arguments, low, high


def _atomic(change):
    """Return the intrinsic that does something to a place of a board, in one order for all threads."""

    @intrinsic
    def act(context, board, place, value):
        def codegen(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return change(builder, builder.gep(data, [args[1]]), args[2])

        return types.int64(board, types.intp, types.int64), codegen

    return act


def _store(builder, at, value):
    builder.store_atomic(value, at, _ORDER, 8)
    return value


_get = _atomic(lambda builder, at, _: builder.load_atomic(at, _ORDER, 8))
_put = _atomic(_store)
_add = _atomic(lambda builder, at, value: builder.atomic_rmw("add", at, value, _ORDER))
_swap = _atomic(lambda builder, at, value: builder.atomic_rmw("xchg", at, value, _ORDER))


@intrinsic
def _pause(context):
    """Leave the core to others for a moment, where there is an instruction for it."""

    def codegen(context, builder, signature, args):
        if builder.module.triple.startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), codegen


def make_offer(slab):
    """Return the intrinsic that puts a part of loops, ``slab(arguments, low, high)``, and its arguments on a board.

    They lie in the frame of the function that calls the intrinsic, which must not return before `close_board` has.
    """

    @intrinsic
    def offer(context, board, arguments):
        inside = types.void(arguments, types.intp, types.intp)

        def codegen(context, builder, signature, args):
            subroutine = slab.get_compile_result(inside)
            context.add_linking_libs([subroutine.library])
            function = ir.Function(builder.module, _SLAB, name=f"{builder.function.name}.slab")
            function.linkage = "internal"
            body = ir.IRBuilder(function.append_basic_block())
            where, low, high = function.args
            held = body.load(body.inttoptr(where, context.get_value_type(arguments).as_pointer()))
            context.call_internal_no_propagate(body, subroutine.fndesc, inside, [held, low, high])
            body.ret_void()
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            for place, what in ((FUNCTION, function), (ARGUMENTS, cgutils.alloca_once_value(builder, args[1]))):
                at = builder.gep(data, [ir.Constant(_INTEGER, place)])
                builder.store_atomic(builder.ptrtoint(what, _INTEGER), at, _ORDER, 8)
            return context.get_dummy_value()

        return types.void(board, arguments), codegen

    return offer


@intrinsic
def _call(context, function, arguments, low, high):
    """Call what a board offers."""

    def codegen(context, builder, signature, args):
        builder.call(builder.inttoptr(args[0], _SLAB.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*4 * [types.int64]), codegen


@inner
def _work(board, helps):
    """Take slabs until none is left, callers from the first, helpers from the last: their caches may know them."""
    slabs, count = board[SLABS], board[COUNT]
    i = -1
    while _add(board, TAKEN, 1) < slabs:
        i = _add(board, LAST, -1) if helps else i + 1
        _call(board[FUNCTION], board[ARGUMENTS], count * i // slabs, count * (i + 1) // slabs)


@inner
def take_board(board):
    """Take a board, or say that another thread has it."""
    return _swap(board, OWNER, 1) == 1


@inner
def share_slabs(board, slabs, count):
    """Share what a board that was taken offers, in slabs of range(count), and take part."""
    board[SLABS], board[COUNT] = slabs, count
    board[TAKEN], board[LAST] = 0, slabs - 1
    _add(board, TURN, 1)
    _work(board, False)


@inner
def close_board(board):
    """Let nobody in, wait until nobody is in, and give the board back."""
    _add(board, TURN, 1)
    while _get(board, INSIDE, 0) > 0:
        _pause()
    _put(board, OWNER, 0)


@compiled
def _watch(board, calls, seen):
    """Help whoever shares on a board, until nobody did for a while, or calls[0] is not `seen` any more."""
    _add(board, WATCHERS, 1)
    left, last = PATIENCE, -1
    while left > 0 and _get(calls, 0, 0) == seen:
        turn = _get(board, TURN, 0)
        if turn == last:
            _pause()
            left -= 1
            continue
        left, last = PATIENCE, turn
        if turn % 2 == 1:
            _add(board, INSIDE, 1)
            if _get(board, TURN, 0) == turn:
                _work(board, True)
            _add(board, INSIDE, -1)
    _add(board, WATCHERS, -1)


class _Helpers:
    """A board, and when helpers were last needed there and last sent for."""

    def __init__(self) -> None:
        self.board = np.zeros(PLACES, np.int64)
        self._needed = self._sent = -np.inf

    def slabs(self, count: int, seconds: float) -> int:
        """Return in how many slabs to share a loop; helpers are sent for if it is long or one of many."""
        most = min(count, int(seconds / EACH))
        workers = min(threads(), most) if most > 1 else 1
        if workers == 1:
            return 1
        now = perf_counter()
        worth_waking = worth_sharing(seconds) or now - self._needed < seconds + SOON
        self._needed = now
        watchers = self.board[WATCHERS]
        if watchers == 0 and not worth_waking:
            return 1
        if watchers < workers - 1 and now - self._sent > ARRIVAL:
            self._sent = now
            stand_by(partial(_watch, self.board), workers - 1)
        return min(count, workers * SLABS_PER_THREAD)


def ready() -> None:
    """Compile what helpers run."""
    _watch(np.zeros(PLACES, np.int64), np.zeros(1, np.int64), 1)


_helpers = _Helpers()


def _renew() -> None:
    """Forget the parent's board, on which nobody looks in a forked child."""
    global _helpers  # noqa: PLW0603
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def board_for(count: int, seconds: float) -> tuple[NDArray[Any], int]:
    """Return the board on which to share a loop over range(count) of so many seconds, and the number of slabs."""
    return _helpers.board, _helpers.slabs(count, seconds)
