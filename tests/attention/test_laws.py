"""One law of linear attention after another, for every map and every backend, over shapes, dtypes, masks and splits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laws
import maps
from covering import turns
from maps import examples

every_map = pytest.mark.parametrize("name", maps.MAPS)


@every_map
@given(case=maps.cases(), data=st.data())
@examples(5)
def test_agrees_with_the_oracle(name, backend, case, data):
    q, k, v, mask = case.arrays()
    packed = data.draw(st.sampled_from([None, 3, 40]))
    ids = None if packed is None else np.arange(q.shape[-2]) // packed % 2
    laws.oracle_agrees(maps.make(name), q, k, v, backend, key_mask=mask, segment_ids=ids)


@every_map
@given(case=maps.cases(lengths=st.integers(2, 70)), data=st.data())
@examples(4)
def test_all_forms_agree(name, backend, case, data):
    q, k, v, mask = case.arrays()
    cut = data.draw(st.integers(1, q.shape[-2] - 1))
    laws.forms_agree(maps.make(name), q, k, v, backend, cut=cut, key_mask=mask)


@every_map
@given(case=maps.cases(lengths=maps.LENGTHS.filter(lambda n: n > 1)), data=st.data())
@examples(4)
def test_blind_to_the_future(name, backend, case, data):
    q, k, v, mask = case.arrays()
    t = data.draw(st.integers(0, q.shape[-2] - 2))
    laws.blind_to_the_future(maps.make(name), q, k, v, backend, t=t, key_mask=mask)


@every_map
@given(case=maps.cases())
@examples(3)
def test_the_order_of_keys_is_free(name, backend, case):
    q, k, v, mask = case.arrays()
    laws.order_of_keys_is_free(maps.make(name), q, k, v, backend, key_mask=mask)


@every_map
@given(
    case=maps.cases(lengths=st.integers(1, 70), masks=False),
    share=st.sampled_from([0.0, 0.2, 0.7]),
    filling=st.sampled_from([1e4, np.nan, np.inf]),
)
@examples(3)
def test_a_masked_key_is_a_removed_key(name, backend, case, share, filling):
    q, k, v, _ = case.arrays()
    keep = np.random.default_rng(0).random(q.shape[-2]) < share
    with np.errstate(invalid="ignore"):  # NumPy warns of infinities, masked or not
        laws.masked_is_removed(maps.make(name), q, k, v, keep, backend, filling)


@every_map
@given(case=maps.cases(), data=st.data())
@examples(3)
def test_segments_are_separate_calls(name, backend, case, data):
    q, k, v, mask = case.arrays()
    n = q.shape[-2]
    cuts = data.draw(st.lists(st.integers(1, max(n - 1, 1)), max_size=4))
    ids = np.zeros(n, int)
    for cut in cuts:
        ids[cut:] += 1
    if data.draw(st.booleans()):
        ids = ids % 2  # an id that comes back later is another segment
    history = None
    if data.draw(st.booleans()):
        history = laws.arrays(9, (*k.shape[:-2], 7, maps.DIM), (*v.shape[:-2], 7, v.shape[-1]), dtype=v.dtype.name)
    laws.segments_are_separate(maps.make(name), q, k, v, ids, backend, key_mask=mask, history=history)


@every_map
@given(case=maps.cases(lengths=st.integers(3, 70), masks=False))
@examples(3)
def test_merging_is_a_monoid(name, backend, case):
    q, k, v, _ = case.arrays()
    n = q.shape[-2]
    laws.merging_is_a_monoid(maps.make(name), q, k, v, backend, cuts=(max(1, n // 4), max(2, n // 2)))


@every_map
@given(case=maps.cases(masks=False))
@examples(3)
def test_linear_in_the_values(name, backend, case):
    q, k, v, _ = case.arrays()
    laws.linear_in_the_values(maps.make(name), q, k, v, backend)


@pytest.mark.parametrize(("name", "dtype"), turns(maps.MAPS, ["float16", "bfloat16"]))
def test_narrow_dtypes(name, backend, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    q, k, v = laws.arrays(3, (2, 37, maps.DIM), (2, 37, maps.DIM), (2, 37, 3), dtype=dtype)
    laws.forms_agree(maps.make(name), q, k, v, backend, cut=20)
