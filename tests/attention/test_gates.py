"""Members of gated linear attention: each beside the recurrence of its paper."""

import numpy as np
import pytest

import kernattn as ka
from gated import D, E, close, recur
from kernattn.errors import ParameterError, ShapeError


@pytest.mark.parametrize("name", ["a_log", "dt_bias"])
def test_parameters_that_do_not_fit_the_heads_are_refused(name):
    arguments = {"a_log": np.zeros(4), "dt_bias": np.zeros(4)}
    with pytest.raises(ShapeError, match=rf"{name} \(heads,\); got \(2, 4, 9\) and \(3,\)"):
        ka.gates.delta(np.zeros((2, 4, 9)), **arguments | {name: np.zeros(3)})


def test_members():
    """Each member beside its paper's recurrence."""
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 4, 9, D))
    gamma = 1 - 2.0 ** (-5 - np.arange(4))
    far = np.tril(gamma[:, None, None] ** np.maximum(np.subtract.outer(np.arange(9), np.arange(9)), 0))
    out, _ = ka.gated_linear_attention(q, k, v, **ka.gates.retention(4, like=q), scale=1.0)
    close(out, (far * (q @ k.mT)) @ v, 1e-12)
    slopes = 2.0 ** (-2 * (np.arange(4) + 1.0))
    np.testing.assert_allclose(ka.gates.lightning(4, 0, 12, like=q)["g"][:, 0], -slopes * (1 + 1e-5), rtol=1e-12)
    x, dt, a = rng.standard_normal((4, 9, E)), rng.uniform(0.1, 1, (4, 9)), -rng.uniform(0.5, 2, 4)
    b, c = rng.standard_normal((2, 1, 9, D))
    out, _ = ka.gated_linear_attention(**ka.gates.mamba2(x, dt, a, b, c))
    s, wanted = np.zeros((4, D, E)), []
    for t in range(9):
        s = np.exp(dt[:, t] * a)[:, None, None] * s + b[:, t, :, None] * (dt[:, t, None] * x[:, t])[:, None, :]
        wanted.append(np.einsum("ad,hde->he", c[:, t], s))
    close(out, np.stack(wanted, 1))
    f = rng.uniform(0, 1, (4, 9, D))
    member = ka.gates.hgrn2(f)
    out, _ = ka.gated_linear_attention(q=q, v=v, **member)
    close(out, recur(q, 1 - f, v, gk=np.log(f), scale=1.0)[0])
    w, a, b = -rng.uniform(0, 1, (4, 9, D)), *(0.3 * rng.standard_normal((2, 4, 9, D)))
    out, _ = ka.gated_linear_attention(**ka.gates.rwkv7(q, w, k, v, a, b))
    close(out, recur(q, k, v, gk=w, erase=(a, b), scale=1.0)[0])
    logits = rng.standard_normal((4, 9, D))
    np.testing.assert_allclose(ka.gates.gla(logits)["gk"], np.log(1 / (1 + np.exp(-logits))) / 16)
    np.testing.assert_allclose(
        ka.gates.delta(logits[..., 0], np.zeros(4), np.ones(4))["g"], -np.log1p(np.exp(logits[..., 0] + 1))
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ka.gates.gla(np.zeros((2, 2)), temperature=0), "temperature must be"),
        (
            lambda: ka.gates.delta(np.zeros((2, 9)), np.zeros(3), np.zeros(2)),
            r"a_log \(heads,\)",
        ),
        (lambda: ka.gates.hgrn2(np.full((2, 2), 2.0)), "f must hold forget gates in"),
        (
            lambda: ka.gates.mamba2(*[np.ones((2, 3, 1)), np.ones((2, 3)), np.ones(2)], *2 * [np.ones((1, 3, 1))]),
            "a must",
        ),
        (lambda: ka.gates.lightning(2, 3, 3, like=np.zeros(1)), "layer must be below num_layers = 3"),
    ],
)
def test_refusals(call, says):
    with pytest.raises((ParameterError, ShapeError), match=says):
        call()
