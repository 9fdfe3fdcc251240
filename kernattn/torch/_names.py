"""Names of a model's parts, as they are without wrappers around them, and a number that tells models apart."""

from collections.abc import Iterator
from hashlib import blake2b

import torch
from torch import Tensor, nn

COMPILED = "_orig_mod"  # the step from what `torch.compile` returns to the module that was given
PARALLEL = nn.DataParallel, nn.parallel.DistributedDataParallel


def plain_name(model: nn.Module, name: str) -> str:
    """Return the name of a part of a model without the steps into wrappers that compile or parallelise."""
    kept: list[str] = []
    at: object = model
    for step in name.split("."):
        if not (step == COMPILED or (step == "module" and isinstance(at, PARALLEL))):
            kept.append(step)
        at = getattr(at, step, None)
    return ".".join(kept)


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return a model's modules by their plain names; where a wrapper has the name too, the module within it."""
    return {plain_name(model, name): each for name, each in model.named_modules()}


def owner_of(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return the module that holds a part, and the part's name there; a part that is compiled alone goes whole."""
    parent, _, child = name.rpartition(".")
    while child == COMPILED:
        parent, _, child = parent.rpartition(".")
    return model.get_submodule(parent), child


def digest_of(model: nn.Module) -> str:
    """Return a number that tells the numbers of models apart: parameters, and buffers that are saved with them."""
    digest = blake2b(digest_size=16)
    for name, value in _numbers_of(model):
        dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
        digest.update(plain_name(model, name).encode())
        digest.update(dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _numbers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    saved = model.state_dict()
    yield from ((name, value) for name, value in model.named_buffers() if name in saved)
