"""Gated rules of tensors (B, n, heads, d) as they are written, and what a call must agree with."""

import torch


def draw(*shapes, seed=0, dtype=torch.float32):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng).to(dtype) for shape in shapes]


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def recur(q, k, v, g, beta, state=None, scale=None):
    """S <- e^g S + k (beta (v - S^T k))^T and o = scale S^T q of tensors (B, n, heads, d), token by token in float64.

    Without beta, nothing is erased. g (B, n, heads) or (B, n, heads, d) has logs of decays.
    """
    q, k, v, g = (x.double() for x in (q, k, v, g))
    g = g if g.ndim == 4 else g[..., None]
    s = q.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[3]) if state is None else state.double()
    out = []
    for t in range(q.shape[1]):
        s = g[:, t].exp()[..., None] * s
        value = v[:, t] if beta is None else beta[:, t, :, None].double() * (v[:, t] - (k[:, t, :, None] @ s)[:, :, 0])
        s = s + k[:, t, ..., None] * value[:, :, None]
        out.append((q[:, t, :, None] @ s)[:, :, 0])
    return (q.shape[-1] ** -0.5 if scale is None else scale) * torch.stack(out, 1), s


def given(n, heads=2, d=8, dtype=torch.float32):
    """Queries, keys of norm 1, values, logs of decays of heads and of channels, and strengths."""
    q, k, v, g, gk, beta = draw(*[(1, n, heads, d)] * 3, (1, n, heads), (1, n, heads, d), (1, n, heads))
    q, k, v = (x.to(dtype) for x in (q, unit(k), v))
    return q, k, v, -g.exp(), -gk.exp(), beta.sigmoid()


def near(found, exact, tolerance=1e-6):
    assert torch.isfinite(found).all()
    assert float((found.double() - exact).abs().max()) <= tolerance * float(exact.abs().max())


def slopes(function, arrays):
    """What a function returns, and the slopes of a sum of it."""
    leaves = [x.detach().clone().requires_grad_() for x in arrays]
    out = function(*leaves)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype)
    return out.detach(), torch.autograd.grad((out * weights).sum(), leaves)


def agrees(function, exact, arrays, tolerance=1e-6):
    (out, found), (wanted, right) = slopes(function, arrays), slopes(exact, [x.double() for x in arrays])
    near(out, wanted, tolerance)
    for one, other in zip(found, right, strict=True):
        near(one, other, tolerance)
