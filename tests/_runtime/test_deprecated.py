"""Old names and old keywords work for one version, and say what to use."""

import warnings

import numpy as np
import pytest

import kernattn as ka
from kernattn._runtime.deprecated import old_arguments, old_attribute, old_names, old_order, old_positions


def test_an_old_name_warns_and_is_the_new_thing():
    look = old_names("kernattn.solvers", {"old_ridge": "kernattn.solvers.ridge"})
    with pytest.warns(DeprecationWarning, match=r"kernattn\.solvers\.old_ridge is now kernattn\.solvers\.ridge"):
        found = look("old_ridge")
    assert found is ka.solvers.ridge
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        look("other")


def test_an_old_name_without_a_new_one_says_what_to_write():
    look = old_names("kernattn.features", {"join": ("phi1 + phi2", max)})
    with pytest.warns(DeprecationWarning, match=r"kernattn\.features\.join is now phi1 \+ phi2"):
        assert look("join") is max


def test_an_old_keyword_warns_and_is_the_new_one():
    @old_arguments(k="num_components")
    def fit(x, *, num_components):
        return x, num_components

    assert fit(1, num_components=2) == (1, 2)
    with pytest.warns(DeprecationWarning, match=r"fit\(k=\) is now num_components="):
        assert fit(1, k=2) == (1, 2)
    with pytest.raises(TypeError, match="twice"):
        fit(1, k=2, num_components=2)


def test_an_old_attribute_warns_and_is_the_new_one():
    class Fit:
        penalty = 2.0
        ridge = old_attribute("ridge", "penalty")

    with pytest.warns(DeprecationWarning, match=r"Fit\.ridge is now \.penalty"):
        assert Fit().ridge == 2.0


def test_an_old_position_warns_and_is_the_keyword():
    @old_positions("scale", "shift")
    def fit(x, *, scale=1, shift=0):
        return scale * x + shift

    assert fit(3, scale=2) == 6
    with pytest.warns(DeprecationWarning, match=r"fit\(\) takes scale=, shift= by keyword only"):
        assert fit(3, 2, 1) == 7
    with pytest.raises(TypeError, match="positional"):
        fit(3, 2, 1, 0)


def test_an_old_order_warns_and_is_the_new_one():
    @old_order(str, "name")
    def fit(x, y, name):
        return x, y, name

    assert fit(1, 2, "a") == (1, 2, "a")
    for call in (lambda: fit("a", 1, 2), lambda: fit("a", 1, y=2), lambda: fit("a", x=1, y=2)):
        with pytest.warns(DeprecationWarning, match=r"fit\(name, ...\) is now fit\(x, y, name, ...\)"):
            assert call() == (1, 2, "a")


def test_the_warning_is_at_the_line_of_the_caller():
    """However many of these wrap a function: by default Python shows no other warning of this kind."""
    phi = ka.random_features(ka.kernels.Gaussian(), 2, 8, rng=0)
    x = np.random.default_rng(1).standard_normal((20, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ka.solvers.logistic(phi, x, x[:, 0] > 0, ridge=1.0)
        ka.features.nystrom(kernel=ka.kernels.Gaussian(), data=x, num_features=5, landmarks="uniform", rng=0)
        _ = ka.solvers.ridge(ka.solvers.moments(x, phi, y=x)).path(np.ones(2)).ridge
    assert len(caught) == 6
    assert {warning.filename for warning in caught} == {__file__}
