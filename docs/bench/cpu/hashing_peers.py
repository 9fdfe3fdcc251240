"""The peer of attention among hashed tokens, where it is installed."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from bench.cpu.peers import fused, torch_of
from kernattn.bench._clock import Call


def reformer(x: Any, v: Any, rounds: int, chunk: int, again: bool) -> Call:
    """Attention of reformer-pytorch, with rotations of its own in each call; pairs of several rounds count `again`.

    That is what it does unless told otherwise: less work, and other weights. Compiled, it takes a
    third to a half less time.
    """
    _, tensors = torch_of(x, v)
    attention = import_module("reformer_pytorch.reformer_pytorch").LSHAttention(
        bucket_size=chunk, n_hashes=rounds, allow_duplicate_attention=again
    )
    return partial(fused(attention.eval()), *tensors)
