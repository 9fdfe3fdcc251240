"""Linear attention on the matrix unit, emulated where there is none: errors, masks and states, rows by themselves."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka

pytestmark = pytest.mark.usefixtures("matrix_unit")

BFLOAT16 = ml_dtypes.bfloat16
DTYPES = {"bfloat16": BFLOAT16, "float16": np.float16}
MAPS = {"elu1": ka.features.elu1(), "favor": ka.random_features(ka.kernels.Softmax(), 32, 64, rng=0)}


def rows_of(rng, dtype, n, e=24, lead=((2,), (2,))):
    shapes = (*lead[0], n, 32), (*lead[1], n, 32), (*lead[1], n, e)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def causal(*rows, backend="cpu", **options):
    """-> outputs, logs and signs of their normalisers, the state after."""
    out, normaliser, state = ka.attention.causal_with_lse(*rows, backend=backend, **options)
    return out, np.stack(normaliser), state


def full(*rows, backend="cpu", **options):
    return ka.linear_attention(*rows, backend=backend, **options)


def rms(x):
    return np.sqrt(np.mean(np.square(x.astype("f8"))))


def same(found, wanted):
    np.testing.assert_array_equal(found.astype("f8"), wanted.astype("f8"))


def is_far(x, low, high):
    size = np.abs(x.astype("f4"))
    return (~(size <= high) | ((size < low) & (size > 0))).any(axis=-1)


@pytest.mark.parametrize("norm", [1, *(pytest.param(x, marks=pytest.mark.slow) for x in (4, 8)), 16])
@pytest.mark.parametrize("name", MAPS)
def test_errors_are_those_of_rounding_the_exact_answer(name, norm):
    rng, phi = np.random.default_rng(norm), MAPS[name]
    q, k, v = rows_of(rng, "f8", 150, 32)
    q, k = (norm * x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    given = [x.astype(BFLOAT16) for x in (q, k, v)]
    exact = [x.astype("f8") for x in given]
    for attend in (lambda *rows, **options: causal(*rows, **options)[0], full):
        wanted = attend(*exact, phi, backend="reference")
        rounding = rms(wanted.astype(BFLOAT16).astype("f8") - wanted)
        two = attend(*given, phi)
        with ka.precision("bfloat16"):
            one = attend(*given, phi)
        assert rms(two - wanted) <= 1.05 * rounding
        assert rms(one - wanted) <= 1.5 * rounding
        assert (np.abs(one - wanted).max(-1) <= 5 * 2.0**-9 * np.abs(wanted).max(-1)).all()
        assert (one != two).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MAPS)
def test_masks_sequences_groups_and_states(name, dtype, by_floats):
    rng, phi = np.random.default_rng(0), MAPS[name]
    n, eps = 150, float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    rows = rows_of(rng, DTYPES[dtype], n, 33, ((2, 3), (2, 1)))
    mask, ids = rng.random((2, 1, n)) < 0.7, np.cumsum(rng.random(n) < 0.03)
    mask[1, 0, :40] = False
    old = causal(*rows_of(rng, DTYPES[dtype], 20, 33, ((2, 1), (2, 1))), phi)[2]
    for options in ({}, {"key_mask": mask}, {"segment_ids": ids, "key_mask": mask}, {"state": old, "key_mask": mask}):
        out, normaliser, state = causal(*rows, phi, **options)
        wanted, wanted_normaliser, wanted_state = by_floats(causal, *rows, phi, **options)
        np.testing.assert_allclose(out.astype("f8"), wanted.astype("f8"), rtol=eps, atol=2e-5)
        np.testing.assert_allclose(normaliser, wanted_normaliser, atol=2e-5)
        assert (out.dtype, state.s.dtype) == (DTYPES[dtype], np.float32)
        np.testing.assert_allclose(state.z, wanted_state.z, rtol=3e-6)
        np.testing.assert_allclose(state.s, wanted_state.s, atol=2e-5 * np.abs(wanted_state.s).max())
    for options in ({}, {"key_mask": mask}):
        found, wanted = full(*rows, phi, **options), by_floats(full, *rows, phi, **options)
        np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=eps, atol=2e-5)


FAR = {"NaN": np.nan, "infinite": np.inf, "huge": 1e35, "denormal": 1e-39}


@pytest.mark.parametrize(("name", "phi"), [*((name, "elu1") for name in FAR), ("NaN", "favor"), ("huge", "favor")])
def test_floats_answer_the_rows_that_tiles_cannot_hold_and_no_other_row_moves(name, phi, by_floats):
    rng, phi, n = np.random.default_rng(0), MAPS[phi], 150
    q, k, v = rows_of(rng, BFLOAT16, n)
    mask = np.ones((2, n), bool)
    mask[:, 20] = False
    q[0, 5, 2] = k[0, 100, 3] = v[1, 70, 1] = k[0, 20, 1] = v[1, 20, 1] = FAR[name]
    far_q, far_k, far_v = is_far(q, 0, 2.0**40), is_far(k, 0, 2.0**40), is_far(v, 2.0**-40, 2.0**36)
    told = far_q | (np.cumsum(mask & (far_k | far_v), axis=-1) > 0)
    assert 0 < told.sum() < told.size
    clean = [np.where(far[..., None], 1, x).astype(x.dtype) for x, far in ((q, far_q), (k, far_k), (v, far_v))]
    kept, kept_normaliser, kept_state = causal(*clean, phi, key_mask=mask)
    with np.errstate(invalid="ignore"):
        wanted, wanted_normaliser, wanted_state = by_floats(causal, q, k, v, phi, key_mask=mask)
        out, normaliser, state = causal(q, k, v, phi, key_mask=mask)
    same(out, np.where(told[..., None], wanted, kept))
    same(normaliser, np.where(told, wanted_normaliser, kept_normaliser))
    after = told[:, -1]
    same(state.s, np.where(after[:, None, None], wanted_state.s, kept_state.s))
    same(state.z, np.where(after[:, None], wanted_state.z, kept_state.z))
    told = far_q | (mask & (far_k | far_v)).any(axis=-1, keepdims=True)  # now every row sees them
    for n in (120, 150):  # without sums, and with sums of all keys
        rows, seen, which = [x[:, :n] for x in (q, k, v)], mask[:, :n], told[:, :n]
        kept = full(*(x[:, :n] for x in clean), phi, key_mask=seen)
        found, wanted = full(*rows, phi, key_mask=seen), by_floats(full, *rows, phi, key_mask=seen)
        same(found[~which], kept[~which])
        np.testing.assert_allclose(found[which].astype("f8"), wanted[which].astype("f8"), rtol=2.0**-7, atol=2e-5)


@pytest.mark.parametrize("name", MAPS)
def test_sums_that_tiles_take_for_0_are_left_to_floats(name, by_floats):
    rng, phi = np.random.default_rng(0), MAPS[name]
    rows, old = rows_of(rng, BFLOAT16, 70), causal(*rows_of(rng, BFLOAT16, 20), phi)[2]
    old.s[..., 3] *= 1e-37
    for found, wanted in zip(
        causal(*rows, phi, state=old)[:2], by_floats(causal, *rows, phi, state=old)[:2], strict=True
    ):
        same(found, wanted)
    q, k, v = rows_of(rng, BFLOAT16, 150)
    tiny = (1e-38 * v.astype("f4")).astype(BFLOAT16)
    same(full(q, k, tiny, phi), by_floats(full, q, k, tiny, phi))


@pytest.mark.parametrize("future", [(30, 30, 1e3), (1e8, 1e-3, 1e-30), (np.nan, np.inf, np.nan)], ids=str)
@pytest.mark.parametrize("name", MAPS)
def test_the_past_keeps_every_bit(name, future):
    rng, phi = np.random.default_rng(0), MAPS[name]
    rows = rows_of(rng, BFLOAT16, 150)
    whole = causal(*rows, phi)
    for t in (7, 64, 100):
        changed = [x.copy() for x in rows]
        for x, factor in zip(changed, future, strict=True):
            x[:, t:] = (factor * x[:, t:][:, ::-1].astype("f4")).astype(x.dtype)
        for given in (changed, [x[:, :t] for x in rows]):
            out, normaliser, _ = causal(*given, phi)
            same(out[:, :t], whole[0][:, :t])
            same(normaliser[..., :t], whole[1][..., :t])


def test_parts_of_a_sequence_are_the_whole():
    rng, phi = np.random.default_rng(0), MAPS["favor"]
    rows = rows_of(rng, BFLOAT16, 200)
    whole, _, state = causal(*rows, phi)
    first, _, between = causal(*(x[:, :77] for x in rows), phi)
    second, _, after = causal(*(x[:, 77:] for x in rows), phi, state=between)
    np.testing.assert_allclose(
        np.concatenate([first, second], axis=1).astype("f8"), whole.astype("f8"), rtol=2.0**-7, atol=2e-5
    )
    change = np.exp(after.peak - state.peak)
    np.testing.assert_allclose(after.z * change, state.z, rtol=1e-6)
    np.testing.assert_allclose(after.s * change[..., None], state.s, atol=2e-5 * np.abs(state.s).max())


def test_projections_are_of_the_unit_and_other_features_of_floats(by_floats):
    rows = rows_of(np.random.default_rng(0), BFLOAT16, 40)  # a chunk either way
    for name, phi in MAPS.items():
        z, wanted = causal(*rows, phi)[2].z, by_floats(causal, *rows, phi)[2].z
        np.testing.assert_allclose(z, wanted, rtol=4e-6)
        assert (z != wanted).any() == (name == "favor")


def test_projections_have_the_digits_of_float32(by_floats):
    """Features of one key: frequencies in two parts would show."""
    phi, mask = MAPS["favor"], np.arange(40) == 20
    rows = rows_of(np.random.default_rng(0), BFLOAT16, 40)
    wanted = causal(*(x.astype("f8") for x in rows), phi, key_mask=mask, backend="reference")[2]
    unit, floats = causal(*rows, phi, key_mask=mask)[2], by_floats(causal, *rows, phi, key_mask=mask)[2]
    errors = [np.abs(x.peak + np.log(x.z) - wanted.peak - np.log(wanted.z)).max() for x in (unit, floats)]
    assert errors[0] < 2 * errors[1] + 1e-6


def test_threads_change_nothing(on_threads):
    rng, phi = np.random.default_rng(0), MAPS["elu1"]
    rows = rows_of(rng, BFLOAT16, 150, lead=((6,), (6,)))
    alone = causal(*rows, phi)
    on_threads(3)
    for found, wanted in zip(causal(*rows, phi)[:2], alone[:2], strict=True):
        same(found, wanted)


def test_signs_and_narrow_rows_are_left_to_floats(by_floats):
    rng = np.random.default_rng(0)
    signed = ka.random_features(ka.kernels.Gaussian(), 32, 64, "trigonometric", rng=0)
    for phi, e in ((signed, 24), (MAPS["elu1"], 15)):
        rows = rows_of(rng, BFLOAT16, 70, e)
        for found, wanted in zip(causal(*rows, phi)[:2], by_floats(causal, *rows, phi)[:2], strict=True):
            same(found, wanted)
    rows = rows_of(rng, BFLOAT16, 70, 16)
    assert (causal(*rows, MAPS["elu1"])[1] != by_floats(causal, *rows, MAPS["elu1"])[1]).any()
