"""Exported functions at other lengths than the example's: in this process, in another one, and by ONNX Runtime."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

import kernattn as ka
from kernattn.errors import ParameterError

N = torch.export.Dim("n", min=2, max=4096)
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=0)


class Layer(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def rows(n, seed=0):
    made = torch.Generator().manual_seed(100 * n + seed)
    return tuple(torch.randn(2, 3, n, 4, generator=made) for _ in range(3))


def exported(function, given, sizes):
    return torch.export.export(Layer(function), given, dynamic_shapes=(sizes,))


def softmax(causal):
    def attend(q, k, v, mask, key_bias, score_bias):
        given = {"causal": causal, "key_mask": mask, "key_bias": key_bias, "score_bias": score_bias}
        return ka.attention.softmax_with_lse(q, k, v, **given, backend="reference")

    return attend


@pytest.mark.parametrize("causal", [False, True])
def test_exact_attention_by_array_operations(causal):
    """As of known lengths, with what is hidden anything at all, and rows that see nothing."""

    def beside(n, length):
        mask = torch.arange(length) != 1
        key_bias = torch.linspace(-1, 1, length)
        key_bias[0] = -math.inf
        score_bias = torch.sin(torch.arange(n * length, dtype=torch.float32)).reshape(n, length)
        score_bias[-1] = -math.inf
        score_bias[:, -1] = -math.inf
        return mask, key_bias, score_bias

    def arguments(n, length):
        q, (_, k, v) = rows(n)[0], rows(length, 1)
        k, v = k.clone(), v.clone()
        k[..., 1, :], v[..., 1, 0], v[..., 0, 1], v[..., -1, 2] = math.nan, math.nan, math.inf, -math.inf
        return q, k, v, *beside(n, length)

    length = torch.export.Dim("length", min=2, max=4096) if not causal else N
    sizes = ({2: N}, {2: length}, {2: length}, {0: length}, {0: length}, {0: N, 1: length})
    function = softmax(causal)
    found = exported(function, arguments(7, 7 if causal else 9), sizes)
    assert not any("kernattn" in str(node.target) for node in found.graph.nodes)
    for n in (2, 12, 600):
        given = arguments(n, n if causal else n + 3)
        for one, other in zip(found.module()(*given), function(*given), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
            assert not torch.isnan(one).any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_reach_the_rows_that_see_them(value):
    def causal(q, k, v):
        return ka.softmax_attention(q, k, v, causal=True, backend="reference")

    q, k, v = rows(6)
    v[0, 0, 3, 0] = value
    found = exported(causal, rows(9), ({2: N},) * 3).module()(q, k, v)
    torch.testing.assert_close(found, causal(q, k, v), rtol=0, atol=1e-6, equal_nan=True)
    assert torch.isfinite(found[0, 0, :3]).all()
    assert not torch.isfinite(found[0, 0, 3:, 0]).any()


FUNCTIONS = {
    "packed": lambda q, k, v, ids: ka.linear_attention(q, k, v, PHI, segment_ids=ids),
    "packed and masked": lambda q, k, v, ids: ka.linear_attention(q, k, v, PHI, segment_ids=ids, key_mask=ids != 1),
    "window": lambda q, k, v, ids: ka.attention.window_attention(q, k, v, PHI, 4)[0] + 0 * ids[:, None],
    "state": lambda q, k, v, ids: ka.attention.window_attention(q, k, v, PHI, 4)[1].k + 0 * ids[0],
    "no window": lambda q, k, v, ids: ka.attention.window_attention(q, k, v, PHI, 0)[0] + 0 * ids[:, None],
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_packed_sequences_and_windows(name):
    """Fewer tokens than the window, as many, and more: the plan is made where the graph meets them."""
    found = exported(FUNCTIONS[name], (*rows(7), torch.arange(7) // 3), ({2: N},) * 3 + ({0: N},)).module()
    for n in (2, 4, 5, 40):
        given = *rows(n), torch.arange(n) // 3
        torch.testing.assert_close(found(*given), FUNCTIONS[name](*given), rtol=0, atol=1e-6)


def test_array_operations_for_one_length_say_so():
    for function in (
        lambda q, k, v: ka.linear_attention(q, k, v, PHI, segment_ids=q[0, 0, :, 0].int(), backend="reference"),
        lambda q, k, v: ka.attention.window_attention(q, k, v, PHI, 4, backend="reference")[0],
    ):
        with pytest.raises(
            ParameterError, match="made for one number of tokens; got a symbol: export with backend=None"
        ):
            exported(function, rows(7), ({2: N},) * 3)


ELSEWHERE = """
import sys, numpy as np
given = np.load(sys.argv[2])
if sys.argv[1].endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    out = session.run(None, {each.name: given[name] for each, name in zip(session.get_inputs(), "qkv", strict=True)})[0]
else:
    import torch
    out = torch.export.load(sys.argv[1]).module()(*(torch.from_numpy(given[name]) for name in "qkv")).numpy()
np.save(sys.argv[3], out)
assert "kernattn" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # of PyTorch's exporter
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_another_process_runs_other_lengths(kind, tmp_path):
    def causal(q, k, v):
        return ka.softmax_attention(q, k, v, causal=True, backend="reference")

    file, given, out = (str(tmp_path / name) for name in (f"model.{kind}", "given.npz", "out.npy"))
    found = exported(causal, rows(7), ({2: N},) * 3)
    if kind == "pt2":
        torch.export.save(found, file)
    else:
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
        torch.onnx.export(found, (), file, dynamo=True, verbose=False)
    other = rows(50)
    np.savez(given, **{name: x.numpy() for name, x in zip("qkv", other, strict=True)})
    subprocess.run([sys.executable, "-c", ELSEWHERE, file, given, out], check=True, cwd=tmp_path)
    np.testing.assert_allclose(np.load(out), causal(*other), rtol=0, atol=1e-6)
