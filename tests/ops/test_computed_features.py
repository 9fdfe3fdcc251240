"""The attention ops with features computed before (spec None), which is how a user's own map comes to them."""

import numpy as np
import pytest

import oracles
from kernattn.ops.attend.reference import attend
from kernattn.ops.causal.reference import causal
from kernattn.ops.key_state.reference import key_state
from kernattn.ops.step.reference import step
from laws import arrays
from seam import ScaledFeatures
from xp import to_numpy

N, M, E = 37, 6, 3


def computed(kind, seed):
    """Features in their three forms, and the oracle's."""
    values, log = arrays(seed, (2, N, M), (2, N, M), dtype="float64")
    if kind == "per feature":
        given, fine = (np.ones((2, N, 1)), 5 * log), oracles.exponential(5 * log)
    elif kind == "per row":
        given, fine = (values, 5 * log[..., :1]), oracles.explicit(values * np.exp(5 * log[..., :1]))
    else:  # values, and a log scale for each of them
        given, fine = (np.abs(values), 5 * log), oracles.explicit(np.abs(values) * np.exp(5 * log))
    return given, fine


@pytest.mark.parametrize("kind", ["per feature", "per row", "both"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_computed_features(kind, masked, packed, xp):
    if xp.name == "jax":
        pytest.skip("compiled operation by operation; test_jax.py traces computed features")
    (given_q, fq), (given_k, fk) = computed(kind, 1), computed(kind, 2)
    (v,) = arrays(3, (2, N, E), dtype="float64")
    mask = np.random.default_rng(4).random((2, N)) < 0.6 if masked else None
    ids = np.arange(N) // 15 if packed else None
    with xp.wide():
        q, k = (ScaledFeatures(*map(xp.asarray, given)) for given in (given_q, given_k))
        mask_, ids_ = (None if a is None else xp.asarray(a) for a in (mask, ids))
        out, _, state = causal(q, k, xp.asarray(v), None, None, None, mask_, ids_, False)
        wanted, condition = oracles.linear_attention(
            fq, fk, v, oracles.allowed(N, N, causal=True, key_mask=mask, segment_ids=ids)
        )
        assert (np.abs(to_numpy(out) - wanted) <= 1e-11 * condition[..., None]).all()
        if packed:
            return
        summed = key_state(k, xp.asarray(v), None, mask_)
        full, condition = oracles.linear_attention(fq, fk, v, oracles.allowed(N, N, key_mask=mask))
        for each in (state, summed):
            got = to_numpy(attend(each, q, None, xp.asarray(v).dtype, False)[0])
            assert (np.abs(got - full) <= 1e-11 * condition[..., None]).all()
        token_q, token_k = (ScaledFeatures(*(a[:, 5, :] for a in f)) for f in (q, k))
        _, _, before = causal(
            *(ScaledFeatures(*(a[:, :5, :] for a in f)) for f in (q, k)),
            xp.asarray(v[:, :5]),
            None,
            None,
            None,
            None if mask is None else xp.asarray(mask[:, :5]),
            None,
            False,
        )
        stepped, _ = step(
            before,
            token_q,
            token_k,
            xp.asarray(v[:, 5]),
            None,
            None,
            None if mask is None else xp.asarray(mask[:, 5]),
            False,
        )
        np.testing.assert_allclose(to_numpy(stepped), to_numpy(out)[:, 5], rtol=1e-9, atol=1e-9)


def test_lengths_around_the_chunk():
    """Every length up to three chunks, token by token against a plain loop."""
    (fq, fk), (v,) = arrays(6, (200, M), (200, M), dtype="float64"), arrays(7, (200, E), dtype="float64")
    fq, fk = np.abs(fq) + 0.1, np.abs(fk) + 0.1
    wanted = oracles.recurrent(oracles.explicit(fq), oracles.explicit(fk), v)
    for n in range(1, 200):
        zeros = np.zeros((n, 1))
        out, *_ = causal(
            ScaledFeatures(fq[:n], zeros), ScaledFeatures(fk[:n], zeros), v[:n], None, None, None, None, None, False
        )
        np.testing.assert_allclose(out, wanted[:n], rtol=1e-11, atol=1e-12)
