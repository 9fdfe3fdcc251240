"""Races of estimators on tables: what a file is read as, what a row says, and what rows say together."""

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")

import kernattn as ka
from bench.command import run
from bench.cpu.tabular import races, sources
from bench.cpu.tabular.contestants import CLASSIFIERS, REGRESSORS, Contestant, judge
from bench.cpu.tabular.report import parts, summary
from kernattn.cli._main import parser
from kernattn.errors import ParameterError

FILE = (
    '"","age","kind","name","y"\n'
    + "\n".join(f'"{i}",{i % 7},{"abc"[i % 3]},w{i},{i * i}' for i in range(40))
    + '\n"40",NA,a,w,5\n"41",3,NA,w,NA\n'
)


@pytest.fixture
def archive(monkeypatch):
    monkeypatch.setattr(sources, "_archive", lambda: {"mine": FILE.encode("latin-1")})


@pytest.mark.usefixtures("archive")
def test_columns_of_words_are_indicators_and_gaps_are_medians():
    x, y = sources._of_r("mine", "y", classes=False)
    assert x.shape == (41, 4)  # age, and three kinds; names are too many, and a row has no target
    np.testing.assert_array_equal(x[:40, 0], np.arange(40) % 7)
    assert x[40, 0] == np.median(np.arange(40) % 7)
    np.testing.assert_array_equal(x[:, 1:].sum(axis=1), 1.0)
    assert (y[:40] == np.arange(40) ** 2).all()
    assert y[40] == 5


@pytest.mark.usefixtures("archive")
def test_small_classes_are_left_out():
    x, y = sources._of_r("mine", "kind", classes=True)
    assert (len(x), sorted(set(y))) == (15, ["a"])


def test_new_rows_have_no_part_in_the_scale_and_all_classes_are_learnt():
    rng = np.random.default_rng(0)
    x, y = 5 + rng.standard_normal((200, 3)), np.repeat([0, 1, 2, 3], [100, 98, 1, 1])
    s = sources.split(sources.Table("t", True, lambda: (x, y), rows=50), seed=1)
    assert (s.x.shape, s.new_x.shape) == ((50, 3), (150, 3))
    assert set(s.y) == {0, 1, 2, 3}
    np.testing.assert_allclose(s.x.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(s.x.std(axis=0), 1)
    assert abs(s.new_x.mean()) > 1e-6


def test_scores_are_those_of_scikit_learn():
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.metrics import log_loss, r2_score

    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((60, 2)), np.array(["a", "b", "c"])[rng.integers(3, size=60)]
    fit = LogisticRegression().fit(x[:40], labels[:40])
    found = judge(fit, True, x[40:], labels[40:], None)
    assert found["score"] == pytest.approx(log_loss(labels[40:], fit.predict_proba(x[40:]), labels=fit.classes_))
    assert found["accuracy"] == fit.score(x[40:], labels[40:])
    y = x[:, 0] + 0.1 * rng.standard_normal(60)
    line = LinearRegression().fit(x, y)
    assert judge(line, False, x, y, y.mean())["score"] == pytest.approx(r2_score(y, line.predict(x)))


class Mean:
    def __init__(self, y):
        self.mean = np.mean(y)

    def predict(self, x):
        return np.full(len(x), self.mean)


def broken(x, y, seed):
    raise ValueError("no fit")


@pytest.fixture
def small(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 2))
    table = sources.Table("t", False, lambda: (x, x[:, 0]))
    monkeypatch.setattr(races, "tables", lambda most: {"t": table._replace(rows=most or table.rows)})
    contestants = {
        "line": REGRESSORS["line"],
        "mean": Contestant(lambda x, y, seed: Mean(y)),
        "large": Contestant(broken, 10),
    }
    monkeypatch.setattr(
        races,
        "REGRESSORS",
        contestants | {"broken": Contestant(broken), "absent": Contestant(broken, package="no_such")},
    )


@pytest.mark.usefixtures("small")
def test_rows_are_kept_and_failures_told():
    told = []
    rows = races.race(None, ["line", "mean"], 2, [], lambda rows: told.append(len(rows)))
    assert told == [2, 4]
    assert {(row["seed"], row["model"]) for row in rows} == {(s, m) for s in (0, 1) for m in ("line", "mean")}
    assert all(row["score"] > 0.999 for row in rows if row["model"] == "line")
    assert all(row["score"] == pytest.approx(0) for row in rows if row["model"] == "mean")
    assert all(row["seconds"] >= row["fit_seconds"] >= 0 for row in rows)
    marked = [row | {"score": 0.5} for row in rows]
    again = races.race(None, ["line", "mean", "broken", "absent", "large"], 2, marked, lambda rows: None)
    assert [row["score"] for row in again[:4]] == [0.5] * 4  # not measured again
    assert [row.get("failed") for row in again[4:]] == ["ValueError: no fit"] * 2
    with pytest.raises(ParameterError, match=r"models are line, mean.*got nobody"):
        races.race(None, ["nobody"], 1, [], lambda rows: None)


def made(model, table, score, seed=0, classes=False):
    row = {"table": table, "classes": classes, "seed": seed, "model": model, "rows": 9, "dim": 2, "seconds": 2.0}
    return row | {"score": score}


def test_a_summary_counts_what_is_below_the_line():
    rows = [made("line", "a", 0.5), made("line", "b", 0.2), made("FeatureRidge", "a", 0.5, 0)]
    rows += [made("FeatureRidge", "a", 0.46, 1), made("FeatureRidge", "b", 0.9)]
    mine = summary(rows, ["FeatureRidge", "line"], False)[0]
    assert (mine["below"], mine["best"], mine["tables"]) == (1, 1, 2)
    assert mine["lost"] == pytest.approx(0.02)
    assert mine["median"] == pytest.approx((0.48 + 0.9) / 2)
    losses = [made("line", "c", 0.3, classes=True), made("FeatureLogistic", "c", 0.4, classes=True)]
    found = parts(rows + losses)
    assert "| b | 9 | 2 | **0.900** | 0.200 |" in found["tables-regression-each"]
    assert "| FeatureLogistic | 1 | 0.4000 | 0.4000 |  | 0 | 1 | 0 | 0.100 | 2.00 | 2 |" in found["tables-classes"]


def test_a_loss_is_certain_where_seeds_agree():
    scores = {"agree": (0.40, 0.41, 0.42), "differ": (0.2, 0.42, 0.6), "above": (0.7, 0.7, 0.7)}
    rows = [made("line", name, 0.5, seed) for name in scores for seed in range(3)]
    rows += [made("FeatureRidge", name, score, seed) for name, of in scores.items() for seed, score in enumerate(of)]
    mine = summary(rows, ["FeatureRidge"], False)[0]
    assert (mine["below"], mine["certain"]) == (2, 1)


@pytest.mark.usefixtures("small")
def test_the_command_writes_rows_and_a_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# A\n\n<!-- table: tables-regression -->\n<!-- end -->\n")
    words = ["bench", "tables", "--models", "line", "--seeds", "1", "--out", str(tmp_path), "--page", str(page)]
    run(parser().parse_args(words))
    assert "| line | 1 |" in page.read_text()
    kept = json.loads((tmp_path / "tables.json").read_text())
    (tmp_path / "tables.json").write_text(json.dumps([kept[0] | {"score": 0.25}]))
    run(parser().parse_args(words[:-2]))
    assert "0.2500" in capsys.readouterr().out
    run(parser().parse_args([*words[:-2], "--anew"]))
    assert "0.2500" not in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_fewer_rows_have_a_table_and_a_file_of_their_own(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- table: tables-regression -->\n<!-- end -->\n<!-- table: tables-20-regression -->\n<!-- end -->\n"
    )
    words = ["bench", "tables", "--models", "line", "--seeds", "1", "--rows", "20"]
    run(parser().parse_args([*words, "--out", str(tmp_path), "--page", str(page)]))
    assert [row["rows"] for row in json.loads((tmp_path / "tables-20.json").read_text())] == [20]
    first, second = page.read_text().split("tables-20")
    assert "| line |" in second
    assert "| line |" not in first


def test_every_contestant_and_table_has_a_name():
    assert {"line", "FeatureRidge"} <= set(REGRESSORS)
    assert {"line", "FeatureLogistic"} <= set(CLASSIFIERS)
    assert len(sources.tables()) >= 60


def test_both_maps_are_raced():
    """Landmarks are the default, random features that of parts: the page shows by how much they differ."""
    x = np.random.default_rng(0).standard_normal((20, 2))
    y = np.random.default_rng(1).standard_normal(20)
    for name in ("FeatureGP", "FeatureRidge"):
        one, other = (REGRESSORS[each].fit(x, y, 0).feature_map_ for each in (name, f"{name}, random"))
        assert isinstance(one.maps[0] if hasattr(one, "maps") else one, ka.features.Nystrom)
        assert not isinstance(other.maps[0] if hasattr(other, "maps") else other, ka.features.Nystrom)
