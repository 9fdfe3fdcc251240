"""What plans hold: published counts, reach, what is computed beside, and lengths that memory allows."""

import numpy as np
import pytest

import kernattn as ka
import laws
import oracles
import pattern_oracles
from kernattn._plans.parts import dense
from kernattn.attention.patterns import Plan
from visited import counted

P = ka.patterns


@pytest.mark.parametrize(("n", "length"), [(1, 5), (64, 64), (130, 70), (70, 130), (200, 201)])
@pytest.mark.parametrize("causal", [False, True])
def test_dense_plans(n, length, causal):
    plan = Plan("parts", n, length, ((dense(n, length, causal),),))
    np.testing.assert_array_equal(counted(plan, 0), np.tri(n, length, length - n) if causal else np.ones((n, length)))


def test_numbers_beyond_the_tokens_take_no_work():
    """They see what numbers as large as the tokens let them see."""
    for far, near in (
        (P.bigbird(2, 10**6, rng=0, heads=2), P.bigbird(2, 32, rng=1, heads=2)),
        (P.image_2d((8, 8), (2, 2), 10**8), P.image_2d((8, 8), (2, 2), 8)),
        (P.image_2d((8, 8), (10**8, 3), 10**8, order="tiles"), P.image_2d((8, 8), (8, 3), 8, order="tiles")),
    ):
        for causal in (False, True):
            plan, wanted = (each.plan(64, causal=causal) for each in (far, near))
            assert plan.pairs == wanted.pairs
            np.testing.assert_array_equal(plan.mask(), wanted.mask())


def test_bigbird_sees_other_blocks_at_random():
    plan = P.bigbird(8, 3, rng=1, heads=4).plan(200)
    i, j = np.arange(200)[:, None], np.arange(200)
    always, blocks = pattern_oracles.bigbird_always(i, j, 8, 200), set()
    for head in range(4):
        mask = plan.mask(head)
        assert (mask >= always).all()
        more = (mask & ~always)[::8, ::8]
        np.testing.assert_array_equal(more[1:-1].sum(axis=1), 3)
        blocks.add(more.tobytes())
    assert len(blocks) == 4
    assert P.bigbird(8, 3, rng=1, heads=4) == P.bigbird(8, 3, rng=1, heads=4) != P.bigbird(8, 3, rng=2, heads=4)
    assert P.bigbird(8, 99, rng=1).plan(200).pairs == 200**2
    few = P.bigbird(64, 2, rng=0)
    assert few.plan(64).pairs == 64**2
    np.testing.assert_array_equal(few.plan(100, 200).mask(), few.plan(200).mask()[100:])


def test_random_blocks_are_uniform():
    counts = np.zeros((12, 12))
    for seed in range(100):
        counts += P.bigbird(2, 2, rng=seed).plan(24).mask()[::2, ::2]
    free = [0 < b < 11 and abs(b - 5) > 1 for b in range(12)]
    np.testing.assert_allclose(counts[5][free], 100 * 2 / sum(free), atol=25)


def test_counts_are_the_published_ones():
    n = 512
    assert P.local(32).plan(n).pairs == n * 65 - 32 * 33
    assert P.local(64, dilation=4).plan(n).pairs == 4 * (128 * 33 - 16 * 17)
    assert P.longformer(16, [0]).plan(n).pairs == n * 33 - 16 * 17 + 2 * (n - 17)
    assert P.block_permutation(64, np.arange(8)).plan(n).pairs == n * 64
    assert P.bigbird(32, 2, rng=0).plan(n).pairs == 32**2 * (2 * 16 + 2 * 6 + 12 * 7)
    assert P.axial((16, 32), 0).plan(n).pairs == n * 16
    assert P.neighborhood((16, 32), 7).plan(n).pairs == n * 49
    assert P.image_1d(64, 64).plan(n).pairs == n * 128 - 64 * 64
    assert P.prefix(10).plan(n).pairs == n * (n + 1) // 2 + 45


def test_two_layers_of_the_sparse_transformer_reach_all():
    for pattern in (P.strided(8, 8), P.fixed(8, 1)):
        plan = pattern.plan(96)
        assert plan.reach(1) < 0.5
        assert plan.reach(2) == 1.0
    assert P.local(1, 0).plan(9).reach(8) == 1.0 > P.local(1, 0).plan(9).reach(7)


def test_windows_compute_little_that_is_not_seen():
    for pattern, share in ((P.local(256), 0.85), (P.local(512, dilation=4), 0.75), (P.bigbird(64, 3, rng=0), 1.0)):
        plan = pattern.plan(4096)
        assert plan.pairs >= share * plan.visited


def test_plans_are_kept_and_frozen():
    plan = P.local(3).plan(20, causal=True)
    assert plan is P.local(3).plan(20, 20, causal=True)
    assert plan is not P.local(3).plan(20)
    for array in plan.heads[0][0]:
        assert array is None or not array.flags.writeable


def test_a_plan_draws_what_is_seen():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, ax = pyplot.subplots()
    P.strided(3, 4).plan(20).plot(ax)
    picture = ax.images[0].get_array()
    np.testing.assert_array_equal(picture == 1, P.strided(3, 4).plan(20).mask())
    pyplot.close(figure)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        P.local(64), P.local(256, dilation=4), P.strided(64, 512), P.fixed(512, 4), P.longformer(64, [0, 70, 9000]),
        P.block_permutation(64, np.random.default_rng(0).permutation(2048)), P.bigbird(64, 3, rng=0),
        P.image_1d(64, 64), P.image_2d((256, 512), (8, 8), 4), P.axial((256, 512), 0), P.neighborhood((256, 512), 7),
        P.sinks(4) | P.local(64, 0), P.documents(np.arange(2**17) % 512), P.local(9) | P.local(64, dilation=8),
    ],
    ids=repr,
)  # fmt: skip
def test_long_sequences(pattern):
    """Memory is O(n): n x l bits would be 2 GiB; some rows are compared with the oracle."""
    pytest.importorskip("numba")
    n = 2**17
    q, k, v = laws.arrays(8, (n, 4), (n, 4), (n, 3))
    plan = pattern.plan(n)
    held = sum(array.nbytes for part in plan.heads[0] for array in part if array is not None)
    assert held < 100 * n
    out = ka.softmax_attention(q, k, v, pattern=plan)
    sees = pattern._sees(n, n)[0]
    for row in (0, 70, 65_000, n - 1):
        keys = np.flatnonzero(sees(np.array([row]), np.arange(n)))
        wanted, _ = oracles.softmax_attention(q[None, row].astype("f8"), k[keys], v[keys])
        np.testing.assert_allclose(out[row], wanted[0], rtol=1e-4, atol=1e-5)
