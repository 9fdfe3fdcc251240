"""One token of decoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases import counts
from bench.cpu.cases.inputs import normal
from bench.cpu.generate import in_onnx
from bench.cpu.generate.counts import Setting
from bench.cpu.generate.in_torch import InTorch
from bench.cpu.generate.ours import cached, prefix, recurrent
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn.attention import key_state, linear_attention_step
from kernattn.bench import Work
from kernattn.bench._clock import Call
from kernattn.features import FeatureMap, elu1, random_features
from kernattn.kernels import Softmax
from kernattn.transformer import Config, initial_params

SMALL = 1 << 20  # bytes of a state that one thread takes faster than two

KEPT = 784
"""Tokens before the one that exact attention takes."""


def step(o: Sizes, reuse: bool) -> Race:
    """A token of every head, elu + 1, against a state of 32."""
    q, k, v = normal(o, *3 * [(o.heads, 32, o.dim)])
    phi: FeatureMap = elu1()
    state = key_state(k, v, phi)
    q, k, v = (np.ascontiguousarray(x[:, 0]) for x in (q, k, v))
    others = {}
    if peers.have("torch"):
        name = "torch, lean, in place" if reuse else "torch, pure"
        others[name] = _torch_step(q, k, v, state.s.copy(), state.z.copy(), reuse)
    if peers.have("jax") and q.dtype == np.float32:
        others["jax, compiled, donated" if reuse else "jax, compiled"] = _jax_step(q, k, v, state.s, state.z, reuse)
    held = [type(state)(state.s.copy(), state.z.copy(), state.peak.copy(), state.fingerprint) if reuse else state]

    def ours() -> None:
        _, after = linear_attention_step(held[0], q, k, v, phi, reuse_state=reuse)
        if reuse:
            held[0] = after

    return Race({"ours": ours, **others}, counts.step(state, in_place=reuse))


def _torch_step(q: Any, k: Any, v: Any, s: Any, z: Any, reuse: bool) -> Call:
    """Torch's strongest token: `addcmul` writes S once; S + b v^T has a temporary of its size, and `baddbmm` is slow.

    For the product with S, `bmm` beats `(a[:, :, None] * s).sum(1)`, which has such a temporary too, and `einsum`,
    which calls it. A state is given and returned in new arrays, or kept in its own, as ours are. A small one is taken
    by one thread: to wake a second can take torch a time slice, 8 ms.
    """
    torch, (q, k, v, s, z) = peers.torch_of(q, k, v, s, z)
    if s.nbytes < SMALL:
        torch.set_num_threads(1)
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

    return torch.inference_mode()(in_place if reuse else pure)


def _jax_step(q: Any, k: Any, v: Any, s: Any, z: Any, reuse: bool) -> Call:
    """A token under jit, whose state is donated where ours is kept: XLA fuses what stands around S and writes it once.

    A product with S beats a sum over a b^T, as in torch.
    """
    jax = import_module("jax")
    q, k, v, *held = (jax.device_put(np.array(x)) for x in (q, k, v, s, z))

    def take(q: Any, k: Any, v: Any, s: Any, z: Any) -> Any:
        a, b = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
        s, z = s + b[:, :, None] * v[:, None, :], z + b
        return jax.numpy.einsum("hd,hde->he", a, s) / (a * z).sum(-1, keepdims=True), s, z

    run = jax.jit(take, donate_argnums=(3, 4) if reuse else ())

    def call() -> Any:
        out, *after = jax.block_until_ready(run(q, k, v, *held))
        if reuse:
            held[:] = after
        return out

    return call


def decoded(o: Sizes, batch: int, layers: int, attention: str = "elu1") -> Race:
    """A token of every sequence through a transformer with heads of 32, the weights once through memory."""
    dim, m = 32 * o.heads, 32 if attention == "elu1" else o.features
    config = Config(dim=dim, layers=layers, heads=o.heads, vocab=256, length=KEPT + 1)
    params = initial_params(config, rng=o.seed)
    tokens = np.random.default_rng(o.seed).integers(256, size=batch)
    others = {}
    if attention == "exact":
        k, v = normal(o, *2 * [(batch, o.heads, KEPT, 32)])
        ours = cached(params, config, tokens, k, v)
        if peers.have("torch"):
            ways = InTorch(params, config).cached(tokens, k, v, KEPT + 1)
            others |= {f"torch, {way}": call for way, call in ways.items()}
        if in_onnx.is_installed():
            others["ONNX Runtime"] = in_onnx.cached(params, config, tokens, k, v, KEPT + 1)
        written, read, flops, functions = 2.0 * dim, 2.0 * KEPT * dim, 4.0 * KEPT * dim, float(o.heads * KEPT)
    else:
        phi: FeatureMap = elu1() if attention == "elu1" else random_features(Softmax(), 32, m, rng=o.seed)
        ours = recurrent(params, config, tokens, phi)
        if attention == "elu1":
            others = {"NumPy, its products alone": _products(params, config, batch)}
        projected = 0.0 if attention == "elu1" else 4.0 * m * dim
        written = read = o.heads * m * 33.0
        flops, functions = projected + 4.0 * m * dim, 2.0 * m * o.heads
    every = batch * layers  # rows that attend
    weights = sum(x.size for name, x in params.items() if not name.startswith("embed"))
    work = Work(
        4.0 * (weights + every * (read + written)),
        every * (24.0 * dim**2 + flops) + 2.0 * batch * dim * 256,
        every * (functions + 4.0 * dim),  # exponentials of attention, and the nonlinearity between two matrices
        written=4.0 * every * written,
    )
    return Race({"ours": ours, **others}, work, dim=32)


def _products(params: Any, config: Config, batch: int) -> Call:
    """The products of a step by the BLAS, matrix by matrix, queries, keys and values as one; nothing else."""
    chains = []
    for name, x in params.items():
        if name.endswith("q.weight"):
            of = name.removesuffix("q.weight")
            x = np.concatenate([params[f"{of}{each}.weight"] for each in "qkv"], axis=1)
        elif name.endswith(("k.weight", "v.weight")) or x.ndim < 2 or name.startswith("embed"):
            continue
        chains.append((np.ones((batch, len(x)), np.float32), x, np.empty((batch, x.shape[1]), np.float32)))

    def call() -> None:
        for rows, weights, out in chains:
            np.matmul(rows, weights, out=out)

    return call


def prefixes(o: Sizes) -> Race:
    """Logits after the prefixes of 32 sequences, one after the other, and by torch also together."""
    count, s = 32, Setting(2 * o.n, 8, o.heads)
    config = Config(dim=s.dim, layers=s.layers, heads=s.heads, vocab=256, length=o.n)
    params = initial_params(config, rng=o.seed)
    tokens = np.random.default_rng(o.seed).integers(256, size=(count, o.n))
    others = {}
    if peers.have("torch"):
        torch = InTorch(params, config)
        others = {"torch": _in_turn([torch.prefix(each) for each in tokens]), "torch, together": torch.prefix(tokens)}
    work = Work(flops=count * (7 * (24.0 * s.dim**2 * o.n + 2.0 * s.dim * o.n**2) + 4.0 * s.dim**2 * o.n))
    return Race({"ours": _in_turn([prefix(params, config, each) for each in tokens]), **others}, work, dim=32)


def _in_turn(calls: Sequence[Call]) -> Call:
    return lambda: np.concatenate([np.asarray(call()).reshape(1, -1) for call in calls])


def _decoder(batch: int, layers: int, attention: str, told: str) -> Case:
    make = partial(decoded, batch=batch, layers=layers, attention=attention)
    return Case(make, n=1, told=f"sequences: {batch}, layers: {layers}, {told}")


DECODERS = {
    f"decoder{name}-{batch}x{layers}": _decoder(batch, layers, attention, told)
    for name, attention, told in (
        ("", "elu1", "elu + 1"),
        ("-favor", "favor", "FAVOR+"),
        ("-kept", "exact", f"{KEPT} keys and values kept"),
    )
    for batch in (1, 32)
    for layers in (8, 16)
}
