"""Names of kernattn 0.2 work for one version, and say what takes their place."""

import pytest

import kernattn as ka
from kernattn.studies import _regret


@pytest.mark.parametrize(
    ("old", "new"),
    [("look", ka.studies.line_style), ("regrets", _regret.measure_regrets), ("regret_table", _regret.regret_table)],
)
def test_an_old_name_warns_and_is_the_new_thing(old, new):
    with pytest.warns(DeprecationWarning, match=rf"kernattn\.studies\.{old} is now kernattn\.studies\."):
        assert getattr(ka.studies, old) is new


def test_what_is_gone_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'attention_study'"):
        ka.studies.attention_study  # noqa: B018
