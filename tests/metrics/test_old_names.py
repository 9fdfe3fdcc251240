"""Old names of metrics work for one version, and the old order of arguments with them."""

import numpy as np
import pytest

import kernattn as ka


def test_row_kl_keeps_its_order():
    p, q = np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])
    with pytest.warns(DeprecationWarning, match=r"row_kl is now kernattn\.metrics\.attention_kl\(estimate, exact\)"):
        found = ka.metrics.row_kl(p, q)
    np.testing.assert_array_equal(found, ka.metrics.attention_kl(q, p))
    with pytest.warns(DeprecationWarning, match="row_kl"):
        np.testing.assert_array_equal(ka.metrics.row_kl(estimate=q, exact=p), found)
    with pytest.warns(DeprecationWarning, match=r"attention_mse\(out=\) is now estimate="):
        assert ka.metrics.attention_mse(out=p, exact=q) == ka.metrics.attention_mse(p, q)


@pytest.mark.parametrize(("name", "now"), [("settled", "where_settled"), ("tilted_moment", "tilted_moment")])
def test_what_has_become_private_is_found_by_its_old_name(name, now):
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(ka.metrics, name).__name__ == now


def test_confidence_is_a_keyword():
    samples = np.arange(9.0)
    for call in (ka.metrics.mean_and_ci, ka.metrics.median_and_ci):
        with pytest.warns(DeprecationWarning, match="takes confidence= by keyword only"):
            assert call(samples, 0.9) == call(samples, confidence=0.9)
    with pytest.raises(TypeError, match="positional"):
        ka.metrics.mean_and_ci(samples, 0.9, 1)


def test_the_penalty_was_a_ridge():
    gram = np.diag([3.0, 1.0])
    with pytest.warns(DeprecationWarning, match=r"effective_dimension\(ridge=\) is now penalty="):
        assert ka.metrics.effective_dimension(gram, ridge=1.0) == ka.metrics.effective_dimension(gram, 1.0)
    with pytest.warns(DeprecationWarning, match=r"spectral_delta\(ridge=\) is now penalty="):
        assert ka.metrics.spectral_delta(gram, gram, ridge=1.0) == 0
