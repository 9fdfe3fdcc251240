"""Peers of gated linear attention: functions of transformers, plain files of flash-linear-attention, JAX, ONNX Runtime.

All but the last two take (batch, n, heads, d), and are given that. The package of flash-linear-attention asks for
Triton; its files named naive do not, and are loaded alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from bench.cpu import gated_lean as lean
from bench.cpu import peers
from bench.cpu.generate import in_onnx
from kernattn._runtime.parallel import threads
from kernattn.bench._clock import Call

CHUNKS = 16, 32, 64
COMPILED = 512  # tokens: Inductor unrolls the loop over chunks
BLOCKS = 64, 128, 256  # of Mamba-2 and lightning attention, whose own default is 256


def delta(q: Any, k: Any, v: Any, logs: Any, beta: Any, both: bool = False) -> dict[str, Call]:
    """The gated delta rule with logs (heads, n), or with logs (heads, n, d) of channels; chunks of every size."""
    calls: dict[str, Call] = {}
    arrays = q, k, v, logs, beta
    if peers.have("torch") and peers.have("transformers") and logs.ndim == 2:
        run = _plain(_qwen().torch_chunk_gated_delta_rule)
        calls |= {f"transformers, chunks of {c}": _call(run, arrays, both, chunk_size=c) for c in CHUNKS}
        if not both and q.shape[1] <= COMPILED:
            calls["transformers, compiled, chunks of 32"] = _call(peers.fused(run), arrays, both, chunk_size=32)
    known = peers.have("torch") and peers.have("transformers")
    if known and logs.ndim == 3 and find_spec("transformers.models.kimi_linear") is not None:
        kind = import_module("transformers.models.kimi_linear.modeling_kimi_linear")
        run = _plain(kind.chunk_kimi_delta_attention)
        calls |= {f"transformers, chunks of {c}": _call(run, arrays, both, chunk_size=c) for c in CHUNKS}
    names = ("gated_delta_rule", "kda")[logs.ndim - 2]
    naive = naive_of(names)
    if naive is not None and q.shape[1] % max(CHUNKS) == 0:
        run = getattr(naive, f"naive_chunk_{names}")
        calls |= {f"fla naive, chunks of {c}": _call(run, arrays, both, chunk_size=c) for c in CHUNKS}
    if peers.have("jax") and logs.ndim == 2 and q.dtype == np.float32 and q.shape[1] % max(CHUNKS) == 0:
        calls |= {f"JAX, chunks of {c}": in_jax(arrays, c, both) for c in CHUNKS}
    if peers.have("torch") and not both and q.shape[1] % max(CHUNKS) == 0:
        run = lean.torch_delta if logs.ndim == 2 else partial(lean.torch_channels, scale=q.shape[-1] ** -0.5)
        calls |= {f"torch, chunks of {c}": run(arrays, c) for c in CHUNKS}
    if not both and _has_operator():
        calls["ONNX Runtime"] = operator("gated_delta", q, k, v, logs, beta)
    return calls


def in_jax(arrays: Sequence[Any], size: int, both: bool) -> Call:
    """Chunks of the gated delta rule as we would write them for XLA, jitted: one scan, a triangular system a chunk.

    Decays are e to differences of sums, as everywhere but here: strong gates lose digits.
    """
    jax = import_module("jax")
    jnp = jax.numpy
    heads, n, d = arrays[0].shape
    solve = _differentiable_solve(size) if both else _solve
    low = jnp.tril(jnp.ones((size, size), bool))

    def forward(*arrays: Any) -> Any:
        q, k, v, logs, beta = (x.reshape(heads, n // size, size, -1).swapaxes(0, 1) for x in arrays)
        total = jnp.cumsum(logs, -2)
        between = jnp.exp(jnp.where(low, total - total.swapaxes(-1, -2), -jnp.inf))
        since, left = jnp.exp(total), jnp.exp(total[..., -1:, :] - total)
        weak, turned = k * beta, k.swapaxes(-1, -2)
        sides = jnp.concatenate([v * beta, weak * since], -1)
        values, reads = jnp.split(solve((weak @ turned) * between, sides), [v.shape[-1]], -1)
        q = q * d**-0.5
        given = values, reads, (q @ turned) * between, q * since, k * left, since[..., -1:, :]

        def chunk(state: Any, given: Any) -> Any:
            values, reads, scores, queries, keys, decay = given
            written = values - reads @ state
            return state * decay + keys.swapaxes(-1, -2) @ written, queries @ state + scores @ written

        last, out = jax.lax.scan(chunk, jnp.zeros((heads, d, v.shape[-1]), v.dtype), given)
        return out.swapaxes(0, 1).reshape(arrays[2].shape), last

    def back(*arrays: Any) -> Any:
        return jax.grad(lambda *arrays: forward(*arrays)[0].sum(), tuple(range(5)))(*arrays)

    run, given = jax.jit(back if both else forward), [jax.device_put(x) for x in arrays]
    return lambda: tuple(jax.block_until_ready(run(*given)))[: 5 if both else 1]


def _solve(a: Any, sides: Any) -> Any:
    """Return the x of (I + a) x = sides, where a counts below its diagonal."""
    linalg = import_module("jax.lax.linalg")
    return linalg.triangular_solve(a, sides, left_side=True, lower=True, unit_diagonal=True)


def _differentiable_solve(size: int) -> Callable[..., Any]:
    """Return the same as a function of JAX whose gradient is two products with the inverse, of matrices of a size.

    The gradient that JAX has of it solves twice more; as XLA of JAX 0.10 runs it on CPUs, it may wait for ever.
    """
    jax = import_module("jax")
    jnp = jax.numpy

    def forward(a: Any, sides: Any) -> tuple[Any, Any]:
        inverse = _solve(a, jnp.broadcast_to(jnp.eye(size, dtype=a.dtype), a.shape))
        x = inverse @ sides
        return x, (inverse, x)

    def back(kept: Any, g: Any) -> tuple[Any, Any]:
        inverse, x = kept
        told = inverse.swapaxes(-1, -2) @ g
        return jnp.tril(-told @ x.swapaxes(-1, -2), -1), told

    solve = jax.custom_vjp(lambda a, sides: forward(a, sides)[0])
    solve.defvjp(forward, back)
    return solve  # type: ignore[no-any-return]


def decays(q: Any, k: Any, v: Any, logs: Any, scale: float, both: bool = False) -> dict[str, Call]:
    """Decays of heads, logs (heads, n), or of channels; no rule erases."""
    calls: dict[str, Call] = {}
    naive = naive_of("simple_gla") if logs.ndim == 2 else None
    if naive is not None:
        run, arrays = naive.naive_chunk_simple_gla, (q, k, v, logs)
        for c in (*CHUNKS, *BLOCKS[1:]):
            calls[f"fla naive, chunks of {c}"] = _call(run, arrays, both, chunk_size=c, scale=scale)
    whole, arrays = q.shape[1] % max(CHUNKS) == 0, (q, k, v, logs)
    if whole and not both and peers.have("torch"):
        run = lean.torch_decays if logs.ndim == 2 else lean.torch_channels
        calls |= {f"torch, chunks of {c}": run(arrays, c, scale) for c in CHUNKS}
    if whole and both and peers.have("jax"):
        calls["JAX, chunks of 32"] = lean.jax_decays(arrays, 32, scale)
    if not both and _has_operator():
        calls["ONNX Runtime"] = operator("gated", q, k, v, logs, scale=scale)
    return calls


def lightning(q: Any, k: Any, v: Any, layers: int, both: bool) -> dict[str, Call]:
    """The loop of transformers' MiniMax, first layer of so many: its projections, norm and gate do nothing."""
    if not (peers.have("torch") and peers.have("transformers")):
        return {}
    torch, kind = import_module("torch"), import_module("transformers.models.minimax.modeling_minimax")
    heads, n, d = q.shape
    rows = np.concatenate([q, k, v], axis=-1)  # of a head side by side, as its projection gives them

    def core(block: int) -> Callable[..., Any]:
        own = kind.MiniMaxLightningAttention.__new__(kind.MiniMaxLightningAttention)
        torch.nn.Module.__init__(own)
        sizes = {"layer_idx": 0, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": d}
        own.__dict__ |= {**sizes, "block_size": block}
        own.slope_rate = own.get_slope_rate()
        own.query_decay, own.key_decay, own.diagonal_decay = own.decay_factors(own.slope_rate)
        own.act_fn = own.qkv_proj = own.norm = own.out_proj = lambda x: x
        own.output_gate = lambda x: torch.full((1,), 40.0)  # whose sigmoid is 1
        return lambda x: own(x.flatten(2), None, None)[0].view(1, n, heads, d)

    def of_queries(rows: Any) -> Any:
        return _ours(rows)[..., :d]

    return {f"transformers, blocks of {c}": _call(core(c), (rows,), both, told=of_queries) for c in BLOCKS}


def scan(x: Any, dt: Any, a: Any, b: Any, c: Any, both: bool) -> dict[str, Call]:
    """Mamba-2's scan: x (heads, n, e), dt (heads, n), b and c (1, n, d) of all heads."""
    calls: dict[str, Call] = {}
    whole, given = x.shape[1] % max(CHUNKS) == 0, (x, dt, a, b, c)
    if whole and not both and peers.have("torch"):
        calls |= {f"torch, chunks of {size}": lean.torch_scan(*given, size) for size in CHUNKS}
    if whole and both and peers.have("jax"):
        best = (32,) if x.shape[1] < 1024 else (32, 64)
        calls |= {f"JAX, chunks of {size}": lean.jax_scan(*given, size) for size in best}
    if not (peers.have("torch") and peers.have("transformers")):
        return calls
    run = _plain(import_module("transformers.models.mamba2.modeling_mamba2").mamba2_chunk_scan)
    (rate,) = peers.torch_of(a)[1]

    def ours(x: Any, dt: Any, b: Any, c: Any, size: int) -> Any:
        return run(x, dt, rate, b, c, size, return_final_states=True)[0]

    sizes, arrays = (*CHUNKS, *BLOCKS[1:]), (x, dt, b, c)
    return calls | {f"transformers, chunks of {size}": _call(ours, arrays, both, size=size) for size in sizes}


def step(state: Any, q: Any, k: Any, v: Any, logs: Any, beta: Any) -> dict[str, Call]:
    """A token of transformers' gated delta rule, with a new state; and products of torch that renew it in its place."""
    if not (peers.have("torch") and peers.have("transformers")):
        return {}
    run, (held,) = _plain(_qwen().torch_recurrent_gated_delta_rule), peers.torch_of(state[None])[1]
    held = held.clone()  # which begins at a line of the cache, as tensors do
    arrays = [x[:, None] for x in (q, k, v, logs, beta)]
    calls = {"transformers": _call(run, arrays, False, initial_state=held, output_final_state=True)}
    torch, (q, k, v, logs, beta) = peers.torch_of(q, k, v, logs, beta)
    kept = held[0].clone()

    def in_place() -> Any:
        kept.mul_(logs.exp()[:, None, None])
        written = torch.baddbmm(v[:, None], k[:, None], kept, alpha=-1).mul_(beta[:, None, None])
        kept.baddbmm_(k[..., None], written)
        return torch.bmm(q[:, None], kept).mul_(q.shape[-1] ** -0.5)[:, 0]

    return calls | {"torch, in place": torch.inference_mode()(in_place)}


def _has_operator() -> bool:
    """Tell whether ONNX Runtime can be raced: releases before 1.31 end at opset 26."""
    if not in_onnx.is_installed():
        return False
    return tuple(int(x) for x in import_module("onnxruntime").__version__.split(".")[:2]) > (1, 30)


def operator(rule: str, q: Any, k: Any, v: Any, logs: Any, beta: Any = None, scale: float = 0.0) -> Call:
    """ONNX's LinearAttention, opset 27, which takes (batch, n, heads d)."""
    onnx, runtime = import_module("onnx"), import_module("onnxruntime")
    made, helper = onnx.TensorProto.FLOAT, onnx.helper
    given = {"q": q, "k": k, "v": v, "decay": logs, "beta": beta}
    feed = {
        name: np.ascontiguousarray(x.swapaxes(0, 1)).reshape(1, x.shape[1], -1)
        for name, x in given.items()
        if x is not None
    }
    inputs = [helper.make_tensor_value_info(name, made, x.shape) for name, x in feed.items()]
    outputs = [helper.make_tensor_value_info(name, made, None) for name in ("out", "after")]
    names = ["q", "k", "v", "", "decay", *(["beta"] if beta is not None else [])]
    how = {"update_rule": rule, "q_num_heads": len(q), "kv_num_heads": len(k), "scale": float(scale)}
    call = helper.make_node("LinearAttention", names, ["out", "after"], **how)
    graph = helper.make_graph([call], "gates", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)[0].reshape(q.shape[1], len(v), -1).swapaxes(0, 1)


def naive_of(op: str) -> Any:
    """Return flash-linear-attention's plain file of an op; None where it, or einops, which it imports, is missing."""
    spec = find_spec("fla") if peers.have("torch") and peers.have("einops") else None
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "ops", op, "naive.py")
        if file.exists():
            found = spec_from_file_location(f"naive_{op}", file)
            assert found is not None
            assert found.loader is not None
            module = module_from_spec(found)
            found.loader.exec_module(module)
            return module
    return None


def _qwen() -> Any:
    return import_module("transformers.models.qwen3_next.modeling_qwen3_next")


def _plain(function: Any) -> Any:
    """Return the function itself where it stands behind a choice of packages."""
    return getattr(function, "__wrapped__", function)


def _ours(x: Any) -> Any:
    """Return a view (heads, n, ...) of (1, n, heads, ...)."""
    return x[0].transpose(0, 1)


def _call(
    run: Callable[..., Any], arrays: Sequence[Any], both: bool, told: Callable[..., Any] = _ours, **how: Any
) -> Call:
    """Call with (1, n, heads, ...) of arrays (heads, n, ...), all of whose gradients are taken where `both`."""
    torch, tensors = peers.torch_of(*arrays)
    tensors = [x.transpose(0, 1)[None].contiguous().requires_grad_(both) for x in tensors]

    def forward() -> Any:
        out = run(*tensors, **how)
        return _ours(out[0] if isinstance(out, tuple) else out)

    def back() -> Any:
        return tuple(map(told, torch.autograd.grad(forward().sum(), tensors)))

    return back if both else torch.inference_mode()(forward)
