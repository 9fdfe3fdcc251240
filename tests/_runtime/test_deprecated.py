"""Old names and old keywords work for one version, and say what to use."""

import pytest

from kernattn._runtime.deprecated import old_arguments, old_names


def test_an_old_name_warns_and_is_the_new_thing():
    look = old_names("kernattn.solvers", {"old_ridge": "kernattn.solvers.ridge"})
    with pytest.warns(DeprecationWarning, match=r"kernattn\.solvers\.old_ridge is now kernattn\.solvers\.ridge"):
        found = look("old_ridge")
    import kernattn as ka

    assert found is ka.solvers.ridge
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        look("other")


def test_an_old_keyword_warns_and_is_the_new_one():
    @old_arguments(k="num_components")
    def fit(x, *, num_components):
        return x, num_components

    assert fit(1, num_components=2) == (1, 2)
    with pytest.warns(DeprecationWarning, match=r"fit\(k=\) is now num_components="):
        assert fit(1, k=2) == (1, 2)
    with pytest.raises(TypeError, match="twice"):
        fit(1, k=2, num_components=2)
