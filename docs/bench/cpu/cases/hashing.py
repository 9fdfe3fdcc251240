"""Attention among hashed tokens."""

from __future__ import annotations

from functools import partial

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.cpu.hashing_peers import reformer
from bench.races import Race
from bench.sizes import Sizes
from kernattn.attention import lsh_attention, softmax_attention
from kernattn.attention.patterns import lsh
from kernattn.bench import Work

ROUNDS, CHUNK = 4, 64


def hashed(o: Sizes) -> Race:
    """Reformer's attention, 4 rounds of chunks of 64 and buckets for each: all of it, its plan, and what that costs."""
    x, v, rotations = normal(o, *2 * [(o.heads, o.n, o.dim)], (ROUNDS, o.dim, max(1, o.n // (2 * CHUNK))))
    make = partial(lsh, x, rotations=rotations, chunk=CHUNK)
    plan = make().plan(o.n)
    calls = {
        "ours": partial(lsh_attention, x, v, rotations=rotations, chunk=CHUNK),
        "ours, hashes and plan alone": lambda: make().plan(o.n),
        "ours, attention alone": partial(softmax_attention, x, x, v, pattern=plan),
    }
    if peers.have("reformer_pytorch") and o.n % (2 * CHUNK) == 0:
        calls["reformer-pytorch"] = reformer(x, v, ROUNDS, CHUNK, again=False)
        calls["reformer-pytorch, pairs counted again"] = reformer(x, v, ROUNDS, CHUNK, again=True)
    pairs = o.heads * float(plan.pairs)
    size, products = float(v.nbytes), 2.0 * o.tokens * rotations[:, 0].size * o.dim
    works = {
        "ours, hashes and plan alone": Work(size, products),
        "ours, attention alone": Work(3 * size, 4.0 * pairs * o.dim, pairs, written=size),
    }
    return Race(calls, Work(3 * size, 4.0 * pairs * o.dim + products, pairs, written=size), works=works)
