"""Attention of models by maps without a draw, by maps that were given, and by data: what their configs hold of it."""

import copy
import json

import numpy as np
import pytest
import torch

import kernattn as ka
from huggingface.models import answers, gpt2, tokens
from kernattn.errors import DTypeError, ParameterError
from kernattn.huggingface import _attention, _beside, register

DIM = 16  # of a head of `gpt2`
ROWS = np.random.default_rng(0).standard_normal((64, DIM))
GIVEN = ka.random_features(ka.kernels.Softmax(), DIM, 24, "positive", rng=3)


@pytest.fixture(autouse=True)
def _another_process(monkeypatch):
    monkeypatch.setattr(_beside, "_kept", {})
    yield
    register(64, rng=0)


def saved(tmp_path, **arguments):
    """A model whose attention is registered so, and saved; and its answers."""
    made, x = gpt2(n_layer=2), tokens(1, 7)
    register(**arguments)
    wanted = answers(made, "kernattn_favor", x)
    made.save_pretrained(tmp_path)
    return made, x, wanted


def loaded(made, folder):
    return type(made).from_pretrained(folder).eval()


def test_elu1_by_name(tmp_path):
    made, x, wanted = saved(tmp_path, estimator="elu1")
    favor = register()
    assert torch.equal(answers(loaded(made, tmp_path), "kernattn_favor", x), wanted)
    for layer in range(2):
        assert favor.draw(layer, DIM, 1.0, favor._own._replace(estimator="elu1")) == ka.features.elu1()
    with pytest.raises(ParameterError, match="nothing to redraw"):
        register(estimator="elu1").redraw()
    register(estimator="positive")
    with pytest.raises(ParameterError, match=r"of estimator='elu1',.* told estimator='positive'"):
        answers(loaded(made, tmp_path), "kernattn_favor", x)


@pytest.mark.parametrize("given", [{"estimator": "elu1"}, {"estimator": "relu"}, {"phi": GIVEN}])
def test_a_config_holds_no_seed_of_a_map_without_a_draw(tmp_path, given):
    """Random, it told two files of one model apart; a file of before has one, and neither is compared."""
    made, x, wanted = saved(tmp_path, **given)
    noted = json.loads((tmp_path / "config.json").read_text())["kernattn"]
    assert noted == {"estimator": given.get("estimator", "map"), "beside": noted["beside"]}
    register(**given)
    assert torch.equal(answers(made, "kernattn_favor", x), wanted)
    before = {"num_features": 24, "projection": "orthogonal", "seed": 2**60, "draws": 0}
    for file in (noted, before | noted):
        made.config.kernattn = file
        made.save_pretrained(tmp_path)
        for again in ({}, {"rng": 7}, given):
            register(**again)
            again = copy.deepcopy(loaded(made, tmp_path))
            assert torch.equal(answers(again, "kernattn_favor", x), wanted)
            assert torch.equal(answers(copy.deepcopy(again), "kernattn_favor", x), wanted)
            assert again.config.kernattn == noted
    register(8)
    with pytest.raises(ParameterError, match=r"of estimator='(elu1|relu|map)', and register.* told num_features=8"):
        answers(loaded(made, tmp_path), "kernattn_favor", x)


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"phi": GIVEN}, {"phi": GIVEN.redraw(4)}),
        ({"data": ROWS, "estimator": "favor_sharp", "num_features": 8}, {"data": ROWS + 1, "estimator": "favor_sharp"}),
        ({"data": (ROWS, ROWS + 1), "estimator": "optimal_positive"}, {"estimator": "optimal_positive", "data": ROWS}),
    ],
)
def test_what_a_config_does_not_hold_is_given_again(tmp_path, given, other, monkeypatch):
    made, x, wanted = saved(tmp_path, **given)
    monkeypatch.setattr(_beside, "_kept", {})
    register()
    with pytest.raises(ParameterError, match="its config names and does not hold: give register"):
        answers(loaded(made, tmp_path), "kernattn_favor", x)
    register(**other)
    with pytest.raises(ParameterError, match=r"of (num_features=.*, )?data or phi="):
        answers(loaded(made, tmp_path), "kernattn_favor", x)
    register(**given)
    assert torch.equal(answers(loaded(made, tmp_path), "kernattn_favor", x), wanted)


@pytest.mark.parametrize("fits", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_map_is_learnt_once_for_all_layers_and_again_when_loaded(tmp_path, monkeypatch, fits):
    learnt = []

    def draw(kernel, dim, num_features, estimator, projection, data, rng):
        assert (estimator, len(data)) == ("learned", 32)
        name = estimator if fits else "positive"
        learnt.append(ka.random_features(kernel, dim, num_features, name, projection, data if fits else None, rng))
        return learnt[-1]

    given = {"data": ROWS[:32], "estimator": "learned", "num_features": 2, "rng": 1}
    with monkeypatch.context() as patched:
        patched.setattr(_attention, "random_features", draw)
        made, x, wanted = saved(tmp_path, **given)
    assert made.config.kernattn["estimator"] == "learned"
    monkeypatch.setattr(_beside, "_kept", {})
    register()
    with pytest.raises(ParameterError, match="its config names and does not hold: give register"):
        answers(loaded(made, tmp_path), "kernattn_favor", x)
    with monkeypatch.context() as patched:
        patched.setattr(_attention, "random_features", draw)
        register(**given)
        assert torch.equal(answers(loaded(made, tmp_path), "kernattn_favor", x), wanted)
    assert len(learnt) == 2


def test_data_choose_once(tmp_path):
    """By the name of what they chose, which needs them no more where its features do not follow from them."""
    made, x, wanted = saved(tmp_path, data=0.01 * ROWS, num_features=8, rng=5)
    noted = made.config.kernattn
    assert noted["estimator"] in ka.features.ESTIMATORS
    assert (noted["beside"] == "") == (noted["estimator"] not in _beside.SHAPED)
    register(data=0.01 * ROWS, num_features=8, rng=5)
    assert torch.equal(answers(loaded(made, tmp_path), "kernattn_favor", x), wanted)


def test_a_file_of_before_has_no_name_of_data(tmp_path):
    made, x, wanted = saved(tmp_path, num_features=8, rng=5)
    before = dict(made.config.kernattn)
    del before["beside"]
    made.config.kernattn = before
    made.save_pretrained(tmp_path)
    register()
    assert torch.equal(answers(loaded(made, tmp_path), "kernattn_favor", x), wanted)


DRAWN = {"num_features": 8, "estimator": "positive", "projection": "iid", "seed": 1, "draws": 0, "beside": ""}


@pytest.mark.parametrize(
    ("forged", "match"),
    [
        ({"estimator": "map", "beside": ""}, r"beside must be 'map ' and the fingerprint.*estimator is 'map'; got ''"),
        ({"estimator": "map"}, "beside must be 'map ' and"),
        ({"estimator": "map", "beside": "data 12"}, "beside must be 'map ' and.*got 'data 12'"),
        ({"estimator": "elu1", "beside": "map 12"}, "beside must be '' where estimator is 'elu1'; got 'map 12'"),
        ({"estimator": "elu1", "kernel": 1}, "config must have num_features, .*got {.*'kernel': 1}"),
        (DRAWN | {"beside": "data 12"}, "beside must be '' where estimator is 'positive'; got 'data 12'"),
        (DRAWN | {"estimator": "favor_sharp"}, "beside must be 'data ' and a digest.*got ''"),
        (
            DRAWN | {"estimator": "optimal_positive", "beside": "x"},
            "beside must be 'data ' and .* or '' where.*got 'x'",
        ),
        (DRAWN | {"estimator": "auto"}, "estimator must be one of positive, .*learned, elu1, relu, map; got 'auto'"),
        (DRAWN | {"projection": "orthogonl"}, "projection must be one of antithetic, .*got 'orthogonl'"),
        (DRAWN | {"num_features": 0}, "num_features must be a positive integer.*got 0"),
        (
            DRAWN | {"num_features": 2**70},
            r"num_features must be a positive integer below 2\*\*31; got 1180591620717411303424",
        ),
        (DRAWN | {"num_features": 8.0}, "config must have num_features, .*got {.*8.0"),
        (DRAWN | {"seed": -1}, "seed must be a non-negative integer; got -1"),
        (DRAWN | {"draws": -1}, "draws must be an integer from 0 to .*got -1"),
        (DRAWN | {"draws": 2**63}, "draws must be an integer from 0 to .*got 9223372036854775808"),
    ],
)
def test_a_forged_config_is_refused_by_what_it_has(forged, match):
    made = gpt2(n_layer=1)
    register()
    made.config.kernattn = forged
    with pytest.raises(ParameterError, match=match) as caught:
        answers(made, "kernattn_favor", tokens(1, 5))
    assert "model's config" in str(caught.value)
    assert "set model.config.kernattn = None" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"estimator": "elu1", "num_features": 8}, ParameterError, "leave num_features out beside estimator 'elu1'"),
        ({"phi": GIVEN, "rng": 1}, ParameterError, "leave rng out beside phi"),
        ({"phi": "elu1"}, DTypeError, "phi must be a FeatureMap"),
        ({"phi": ka.with_numbers(GIVEN, omega=GIVEN.spec.omega)}, ParameterError, "plain numbers"),
        ({"data": ROWS, "estimator": "positive"}, ParameterError, "leave data out beside estimator 'positive'"),
        ({"estimator": "favor_sharp"}, ParameterError, "'favor_sharp' needs data"),
        ({"estimator": "auto"}, ParameterError, "'auto' needs data"),
        ({"estimator": "learned"}, ParameterError, "'learned' needs data: rows of queries and keys of a head"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        register(**arguments)
