"""`torch.vmap` of the ops: a batch is one more leading axis."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._C._functorch import is_legacy_batchedtensor

from kernattn.torch._ops import TorchOp


def run_batched(
    op: TorchOp, pullback: bool, run: Callable[..., Any], info: Any, dims: tuple[int | None, ...], *inputs: Any
) -> Any:
    """Run an op or its pullback on batches by one call of `run`; return outputs and batch axes, all the first."""
    names = op.taken if pullback else op.names
    numbers = {leaf.name for leaf in op.leaves.values() if leaf.number_of}
    of_numbers = any(dim is not None for name, dim in zip(names, dims, strict=True) if name in numbers)
    if of_numbers or (pullback and inputs[-1]):  # cotangents of numbers are sums over one call
        return one_by_one(run, info.batch_size, dims, inputs)
    axes = [op.axes(name) for name in names]
    items = [x if dim is None else x.movedim(dim, 0)[0] for x, dim in zip(inputs, dims, strict=True)]
    leads = {
        name: x.ndim - count
        for name, x, count in zip(names, items, axes, strict=True)
        if isinstance(x, torch.Tensor) and count is not None
    }
    most = max(leads.values())
    results = run(
        *(
            _spread(x, dim, info.batch_size, most - leads[name]) if name in leads else x
            for name, x, dim in zip(names, inputs, dims, strict=True)
        )
    )
    if pullback:
        wanted = op.find_differentiated(items[: len(op.names)], False)
        shapes = [x.shape for x, some in zip(items, wanted, strict=False) if some]
    else:
        results = (results,) if len(op.outputs) == 1 else results
        shapes = [
            x.shape[1 + most - max(leads[name] for name in leads if name.removesuffix("_s") in output.lead) :]
            for (output, _), x in zip(op.output_leaves, results, strict=True)
        ]
    outputs = [x.reshape(info.batch_size, *shape) for x, shape in zip(results, shapes, strict=True)]
    if pullback:
        return outputs, [0] * len(outputs)
    return (outputs[0], 0) if len(outputs) == 1 else (tuple(outputs), (0,) * len(outputs))


class Batch(NamedTuple):
    """What a rule of `torch.vmap` is told."""

    batch_size: int


def batched_by_autograd(op: TorchOp, run: Callable[..., Any], *taken: Any) -> Any:
    """Run a pullback on cotangents, which may be a batch to `torch.autograd` itself."""
    return through_autograd(
        run, lambda size, dims, plain: run_batched(op, True, run, Batch(size), dims, *plain)[0], taken
    )


def through_autograd(run: Callable[..., Any], of_batch: Callable[..., Any], taken: tuple[Any, ...]) -> Any:
    """Call `run` with cotangents, or `of_batch` where they are a batch to `torch.autograd` itself.

    ``is_grads_batched=True`` of `torch.autograd.grad`, and with it ``vectorize=True`` of `jacobian`, batch by an older
    `vmap`, which does not ask the functions for a rule.
    """
    held = [isinstance(x, torch.Tensor) and is_legacy_batchedtensor(x) for x in taken]
    if not any(held):
        return run(*taken)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    plain = [torch._remove_batch_dim(x, level, 1, 0) if here else x for here, x in zip(held, taken, strict=True)]
    size = next(x.shape[0] for here, x in zip(held, plain, strict=True) if here)
    outputs = of_batch(size, tuple(0 if here else None for here in held), plain)
    return [torch._add_batch_dim(x, 0, level) for x in outputs]


def _spread(x: torch.Tensor, dim: int | None, size: int, more: int) -> torch.Tensor:
    """Return the items of a batch along the first axis, each with so many leading axes more."""
    x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x[(slice(None), *(None,) * more)]


def one_by_one(run: Callable[..., Any], size: int, dims: tuple[int | None, ...], inputs: tuple[Any, ...]) -> Any:
    """Call `run` for one item of the batches after the other; return outputs and their batch axes."""
    calls = [
        run(*(x if dim is None else x.select(dim, at) for x, dim in zip(inputs, dims, strict=True)))
        for at in range(size)
    ]
    if isinstance(calls[0], torch.Tensor):
        return torch.stack(calls), 0
    stacked = [torch.stack(parts) for parts in zip(*calls, strict=True)]
    return (stacked, [0] * len(stacked)) if isinstance(calls[0], list) else (tuple(stacked), (0,) * len(stacked))
