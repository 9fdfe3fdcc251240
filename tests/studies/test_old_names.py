"""Names of kernattn 0.2 work for one version, and say what takes their place."""

import pytest

import kernattn as ka
import kernattn.bench


def test_an_old_name_warns_and_is_the_new_thing():
    with pytest.warns(DeprecationWarning, match=r"kernattn\.studies\.look is now kernattn\.studies\.line_style"):
        assert ka.studies.look is ka.studies.line_style


@pytest.mark.parametrize("name", ["regrets", "regret_table"])
def test_what_has_moved_into_an_example_is_named(name):
    with pytest.raises(AttributeError, match=rf"{name}.*; it is now .* of examples/plot_regret\.py"):
        getattr(ka.studies, name)


@pytest.mark.parametrize("name", ["attention_study", "AttentionSettings"])
def test_what_is_gone_says_what_to_call(name):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; it is now .*study\(\"attention\", out, axes="):
        getattr(ka.studies, name)


@pytest.mark.parametrize(
    ("name", "now"), [("cases", "bench.cases"), ("bench", "bench.race_cases"), ("cpu", "bench.cpu")]
)
def test_what_has_left_the_package_is_named(name, now):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; it is now {now}.* in docs/bench"):
        getattr(kernattn.bench, name)
