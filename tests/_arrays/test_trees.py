"""Trees of numbers: what is done to a tree is done to its leaves."""

from hypothesis import given
from hypothesis import strategies as st

from kernattn._arrays.trees import add, leaves, map_leaves

NUMBERS = st.none() | st.integers(-9, 9)
TREES = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(TREES)
def test_leaves_of_a_mapped_tree_are_mapped_leaves(tree):
    doubled = map_leaves(lambda x: 2 * x, tree)
    assert leaves(doubled) == [None if x is None else 2 * x for x in leaves(tree)]
    assert map_leaves(lambda x: x, tree) == tree


@given(TREES)
def test_the_sum_of_a_tree_with_itself_is_its_double(tree):
    assert add(tree, tree) == map_leaves(lambda x: 2 * x, tree)
