"""What the tests of errors share: calls of each form, and the check of a message."""

import re

import numpy as np
import pytest

import kernattn as ka

PHI = ka.features.elu1()
DRAWN = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)
F32 = np.float32


def x(*shape, dtype=F32):
    return np.ones(shape, dtype)


def linear(q, k, v, phi=PHI, **kw):
    return ka.linear_attention(q, k, v, phi, **kw)


def causal(q, k, v, phi=PHI, **kw):
    return ka.causal_linear_attention(q, k, v, phi, **kw)


def step(q, k, v, phi=PHI, state=None, **kw):
    state = ka.initial_state(phi, (), 2, like=x(4)) if state is None else state
    return ka.linear_attention_step(state, q, k, v, phi, **kw)


FORMS = {"linear": linear, "causal": causal, "softmax": ka.softmax_attention}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


def refused(error, *words):
    """All the words, in any order, in the message of that error."""
    return pytest.raises(error, match="".join(f"(?=.*{re.escape(str(word))})" for word in words))
