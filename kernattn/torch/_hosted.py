"""Functions that run on the host, as PyTorch differentiates and transforms them; graphs end before them."""

from typing import Any

import torch

from kernattn._arrays.hosted import FIRST, Hosted, Pull, give_outputs
from kernattn._arrays.namespaces import to_numpy64
from kernattn.torch._batched import one_by_one, through_autograd
from kernattn.torch._outside import outside_graphs


def _refuse(ctx: Any, *values: Any) -> Any:
    """Raise: a derivative was asked for that there is not."""
    raise NotImplementedError(FIRST)


class Kept:
    """What pulls back the one value that was made; None where it has to be made again."""

    pull: Pull | None = None


class _Value(torch.autograd.Function):
    """The outputs."""

    @staticmethod
    def forward(function: Hosted, kept: Kept, *tensors: Any) -> Any:
        """Return the outputs."""
        outputs, pull = function.forward(*map(to_numpy64, tensors))
        kept.pull = pull
        return give_outputs(function, outputs, tensors[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the tensors, which nobody may change, and what pulls back."""
        ctx.function, ctx.kept, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the cotangents of the tensors."""
        taken = (*cotangents, *ctx.saved_tensors)

        def run(*taken: Any) -> Any:
            return _Pulled.apply(ctx.function, ctx.kept, len(cotangents), *taken)

        def of_batch(*batch: Any) -> Any:
            return one_by_one(run, *batch)[0]

        return None, None, *through_autograd(run, of_batch, taken)

    jvp = staticmethod(_refuse)

    @staticmethod
    def vmap(info: Any, dims: Any, function: Hosted, kept: Kept, *tensors: Any) -> Any:
        """Return the outputs of a batch."""
        kept.pull = None

        def one(*tensors: Any) -> Any:
            return _Value.apply(function, Kept(), *tensors)

        return one_by_one(one, info.batch_size, dims[2:], tensors)


class _Pulled(torch.autograd.Function):
    """The cotangents, whose own derivatives are refused."""

    @staticmethod
    def forward(function: Hosted, kept: Kept, count: int, *taken: Any) -> Any:
        """Return the cotangents of the tensors."""
        tensors = taken[count:]
        pull = kept.pull or function.forward(*map(to_numpy64, tensors))[1]
        grads = pull(tuple(map(to_numpy64, taken[:count])))
        return tuple(torch.as_tensor(dx).to(x) for dx, x in zip(grads, tensors, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    backward = jvp = staticmethod(_refuse)

    @staticmethod
    def vmap(info: Any, dims: Any, function: Hosted, kept: Kept, count: int, *taken: Any) -> Any:
        """Return the cotangents of a batch; of one value, many cotangents."""
        same = kept if all(dim is None for dim in dims[3 + count :]) else Kept()

        def one(*taken: Any) -> Any:
            return _Pulled.apply(function, same, count, *taken)

        return one_by_one(one, info.batch_size, dims[3:], taken)


@outside_graphs("it runs on the host")
def run_hosted(function: Hosted, *tensors: Any) -> Any:
    """Run a function of the host on tensors, by its own rule of derivatives."""
    return _Value.apply(function, Kept(), *tensors)
