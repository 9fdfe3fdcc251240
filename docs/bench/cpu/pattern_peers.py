"""Peers of attention over patterns, each called in the way in which we know it fastest, where it is installed."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from bench.cpu.peers import fused, torch_of
from kernattn.bench._clock import Call

CHUNK = 64  # queries: more are slower at a window of 256


def sdpa_in_chunks(q: Any, k: Any, v: Any, window: int) -> Call:
    """Blocks of queries side by side, each with the keys of its window, hidden by a mask of one block.

    Keys are views of padded ones, put together in each call: scaled_dot_product_attention takes no strides of windows.
    """
    torch, tensors = torch_of(q, k, v)
    h, n, d = q.shape
    blocks, wide = n // CHUNK, CHUNK + 2 * window
    i, j = torch.arange(CHUNK)[:, None], torch.arange(wide)
    token = CHUNK * torch.arange(blocks)[:, None, None] + j - window  # of key j
    sees = ((j >= i) & (j <= i + 2 * window) & (token >= 0) & (token < n))[None]
    bias = torch.where(sees, 0.0, -torch.inf).to(tensors[0].dtype)

    def run(q: Any, k: Any, v: Any) -> Any:
        k, v = (
            torch.nn.functional.pad(x, (0, 0, window, window)).unfold(1, wide, CHUNK).transpose(-1, -2) for x in (k, v)
        )
        q = q.view(h, blocks, CHUNK, d)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, bias).view(h, n, -1)

    return partial(torch.inference_mode()(run), *tensors)


def sdpa_with_mask(q: Any, k: Any, v: Any, window: int) -> Call:
    """Exact attention with a mask (n, n) of floats, which is faster than one of booleans."""
    torch, tensors = torch_of(*(x[None] for x in (q, k, v)))
    at = torch.arange(q.shape[1])
    bias = torch.where((at[:, None] - at).abs() <= window, 0.0, -torch.inf).to(tensors[0].dtype)
    run = torch.inference_mode()(torch.nn.functional.scaled_dot_product_attention)
    return partial(run, *tensors, bias)


def flex(q: Any, k: Any, v: Any, window: int) -> Call:
    """flex_attention, compiled by Inductor, with blocks made ahead: of 64, which beat the default of 128."""
    torch, tensors = torch_of(*(x[None] for x in (q, k, v)))
    module = import_module("torch.nn.attention.flex_attention")
    n = q.shape[1]
    near = module.create_block_mask(
        lambda b, h, i, j: (j - i <= window) & (i - j <= window), None, None, n, n, device="cpu", BLOCK_SIZE=CHUNK
    )
    run = torch.compile(module.flex_attention, fullgraph=True, dynamic=False)
    return partial(torch.inference_mode()(run), *tensors, block_mask=near)


def local_attention(q: Any, k: Any, v: Any, window: int) -> Call:
    """The package's blocks of a window and their neighbours, all of them seen: that spares it a mask of windows."""
    _, tensors = torch_of(q, k, v)
    attend = import_module("local_attention").LocalAttention(
        window, causal=False, look_backward=1, look_forward=1, use_rotary_pos_emb=False
    )
    return partial(fused(attend.eval()), *tensors)


def longformer_hf(q: Any, k: Any, v: Any, window: int) -> Call:
    """Scores, softmax and values of transformers' LongformerSelfAttention, without projections and global tokens."""
    torch, tensors = torch_of(*(x.transpose(1, 0, 2)[None].copy() for x in (q, k, v)))
    module = import_module("transformers.models.longformer.modeling_longformer").LongformerSelfAttention
    core = module.__new__(module)  # without its layers, of which these functions use none
    torch.nn.Module.__init__(core)
    core.__dict__["config"] = SimpleNamespace(onnx_export=False)
    scale = q.shape[-1] ** -0.5

    def run(q: Any, k: Any, v: Any) -> Any:
        scores = core._sliding_chunks_query_key_matmul(q * scale, k, window)
        weights = torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32)
        return core._sliding_chunks_matmul_attn_probs_value(weights, v, window)

    return partial(fused(run), *tensors)


def bigbird_hf(q: Any, k: Any, v: Any, block: int, random: int) -> Call:
    """Attention of transformers' BigBirdBlockSparseAttention, without its projections, with random blocks made ahead.

    Only its outputs are wanted: compiled, it leaves out the matrix (n, n) of weights that it fills otherwise, most of
    its time. Heads share a draw where n is 1024, 3072 or 4096, which changes no work.
    """
    torch, tensors = torch_of(*(x[None] for x in (q, k, v)))
    module = import_module("transformers.models.big_bird.modeling_big_bird")
    heads, n, d = q.shape
    config = module.BigBirdConfig(
        hidden_size=heads * d, num_attention_heads=heads, block_size=block, num_random_blocks=random,
        max_position_embeddings=n, use_bias=False,
    )  # fmt: skip
    core = module.BigBirdBlockSparseAttention(config, seed=0).train()
    if n in (1024, 3072, 4096):
        drawn = core._bigbird_block_rand_mask(n, n, block, block, random, last_idx=1024)[: n // block - 2]
        core._bigbird_block_rand_mask = lambda *_, **__: drawn
    else:
        drawn = core._bigbird_block_rand_mask_with_head(
            n, n, block, block, heads, *core._get_rand_attn_plan(n, block, random)
        )
        core._bigbird_block_rand_mask_with_head = lambda *_, **__: drawn
    core.eval()
    masks = module.BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, n), block)
    blocked, band, rows, columns = masks
    arguments = (
        band, rows, columns, blocked, blocked, heads, random, d, block, block, 1, n, n, 0, None, None,
    )  # fmt: skip

    def run(*given: Any) -> Any:
        return core.bigbird_block_sparse_attention(*given)[0]

    return partial(fused(run), *tensors, *arguments)
