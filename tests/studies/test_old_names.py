"""Names of kernattn 0.2 work for one version, and say what takes their place."""

import pytest

import kernattn as ka


def test_an_old_name_warns_and_is_the_new_thing():
    with pytest.warns(DeprecationWarning, match=r"kernattn\.studies\.look is now kernattn\.studies\.line_style"):
        assert ka.studies.look is ka.studies.line_style


@pytest.mark.parametrize("name", ["regrets", "regret_table"])
def test_what_has_moved_into_an_example_is_named(name):
    with pytest.raises(AttributeError, match=rf"{name}.*; it is now .* of examples/plot_regret\.py"):
        getattr(ka.studies, name)


def test_what_is_gone_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'attention_study'"):
        ka.studies.attention_study  # noqa: B018
