"""Rules as models of transformers call them: a token renews the state of their cache, and outputs may be wide."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from kernattn._arrays.namespaces import accumulation_dtype
from kernattn.ops.gated_step import OP
from kernattn.torch import fla


def stepping(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule for sequences that takes a single token after a state by a step.

    A model copies the state that it gets back into the one that it gave, so that it can be written there at once.
    """

    def run(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        wide = accumulation_dtype(torch, q)
        alone = q.shape[1] == 1 and cu_seqlens is None and not torch.compiler.is_compiling()
        if not alone or initial_state is None or initial_state.dtype != wide:
            return rule(  # type: ignore[no-any-return]
                q, k, v, g=g, beta=beta, initial_state=initial_state, output_final_state=output_final_state,
                use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens,
            )  # fmt: skip
        group = q.shape[2], v.shape[2] // q.shape[2]
        q, k = (x[:, 0, :, None] for x in (q, k))
        v, g, beta = (x[:, 0].unflatten(1, group) for x in (v, g.to(wide), beta.to(wide)))
        logs = (None, g) if g.ndim > beta.ndim else (g, None)
        given = initial_state.unflatten(1, group), q, k, v, *logs, beta, None, None
        out, after = OP.implementation(v)(*given, q.shape[-1] ** -0.5, use_qk_l2norm_in_kernel, None, True, None)
        return out.flatten(1, 2)[:, None], after.flatten(1, 2) if output_final_state else None

    return run


@wraps(fla.mamba_chunk_scan_combined)
def wide_scan(x: Tensor, *args: Any, **given: Any) -> Any:
    """Run Mamba-2 with outputs in the dtype in which sums run, as models' own function has them before their norm."""
    return fla.mamba_chunk_scan_combined(x.to(accumulation_dtype(torch, x)), *args, **given)
