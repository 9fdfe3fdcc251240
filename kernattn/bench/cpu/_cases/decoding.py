"""One token of decoding."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from kernattn.attention import key_state, linear_attention_step
from kernattn.bench._races import Call
from kernattn.bench._rates import Work
from kernattn.bench._rows import Race
from kernattn.bench._sizes import Sizes
from kernattn.bench.cpu import _peers as peers
from kernattn.bench.cpu._cases.inputs import normal
from kernattn.features import FeatureMap, elu1

__all__ = ["step"]


def step(o: Sizes, reuse: bool) -> Race:
    """A token of every head, elu + 1, against a state of 32."""
    q, k, v = normal(o, *3 * [(o.heads, 32, o.dim)])
    phi: FeatureMap = elu1()
    state = key_state(k, v, phi)
    q, k, v = (np.ascontiguousarray(x[:, 0]) for x in (q, k, v))
    others: dict[str, Call] = {}
    if peers.have("torch"):
        name = "torch, lean, in place" if reuse else "torch, pure"
        others[name] = _torch_step(q, k, v, state.s.copy(), state.z.copy(), reuse)
    held = [type(state)(state.s.copy(), state.z.copy(), state.peak.copy(), state.fingerprint) if reuse else state]

    def ours() -> None:
        _, after = linear_attention_step(held[0], q, k, v, phi, reuse_state=reuse)
        if reuse:
            held[0] = after

    size = float(state.s.nbytes + state.z.nbytes)
    work = Work(2 * size, 4.0 * (state.s.size + state.z.size), 2.0 * o.heads * o.dim, written=size, in_place=reuse)
    return Race({"ours": ours, **others}, work)


def _torch_step(q: Any, k: Any, v: Any, s: Any, z: Any, reuse: bool) -> Call:
    """Torch's strongest token: `addcmul` writes S once; S + b v^T has a temporary of its size, and `baddbmm` is slow.

    For the product with S, `bmm` beats `(a[:, :, None] * s).sum(1)`, which has such a temporary too, and `einsum`,
    which calls it. A state is given and returned in new arrays, or kept in its own, as ours are.
    """
    torch, (q, k, v, s, z) = peers.torch_of(q, k, v, s, z)
    elu = torch.nn.functional.elu

    def pure() -> Any:
        a, b = elu(q).add_(1), elu(k).add_(1)
        s_new, z_new = torch.addcmul(s, b[:, :, None], v[:, None, :]), z + b
        return torch.bmm(a[:, None], s_new)[:, 0].div_((a * z_new).sum(-1, keepdim=True)), s_new, z_new

    def in_place() -> Any:
        a, b = elu(q).add_(1), elu(k).add_(1)
        s.addcmul_(b[:, :, None], v[:, None, :])
        z.add_(b)
        return torch.bmm(a[:, None], s)[:, 0].div_((a * z).sum(-1, keepdim=True))

    return cast(Call, torch.inference_mode()(in_place if reuse else pure))
