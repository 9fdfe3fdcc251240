"""Modules of kernattn.torch: what they compute, what they keep, and that they train."""

import io
import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.torch import FavorAttention, LinearAttention
from module_cases import KINDS, B, D, E, H, N, favor, heads, made, oracle
from quality.tree import ROOT


@KINDS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_of_heads_is_that_as_written(kind, causal, kv_heads):
    module = made(kind, causal=causal)
    q, k, v = heads(kv_heads)
    mask = torch.ones((B, N), dtype=torch.bool)
    mask[0, :3] = mask[1, 5:8] = False
    for given in (None, mask):
        out = module(q, k, v, key_mask=given)
        assert out.shape == (B, H, N, E)
        torch.testing.assert_close(out, oracle(module, q, k, v, given), rtol=1e-9, atol=1e-12)


@KINDS
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_decoding_is_the_whole_in_parts(kind, kv_heads):
    module = made(kind)
    q, k, v = heads(kv_heads)
    mask = torch.ones((B, N), dtype=torch.bool)
    mask[1, [1, 6]] = False
    whole, state, parts = module(q, k, v, key_mask=mask), None, []
    for part in (slice(0, 5), slice(5, 6), slice(6, 7), slice(7, N)):
        out, state = module.decode(q[:, :, part], k[:, :, part], v[:, :, part], state, key_mask=mask[:, part])
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "trigonometric", "phase", "optimal_positive"])
def test_a_module_is_the_map_that_it_names(estimator):
    module = favor(estimator=estimator, seed=7)
    design = ka.random_features(ka.kernels.Softmax(), D, 16, estimator, rng=0)
    phi = design.redraw(np.random.default_rng([7, 0]))
    q, k, v = heads()
    expected, _ = ka.causal_linear_attention(q, k, v, phi)
    torch.testing.assert_close(module(q, k, v), expected, rtol=2e-3, atol=2e-4)  # its omega is float32


@pytest.mark.parametrize("learnable", [False, True])
def test_a_loaded_module_gives_what_the_saved_one_gave(learnable):
    x, module = heads(), favor(seed=1, learnable=learnable)
    module.redraw()
    expected = module(*x)
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other = favor(seed=2, learnable=learnable)
    assert not torch.equal(other(*x), expected)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(*x), expected)
    first, second = (each.decode(*x)[1] for each in (module, other))
    assert first.fingerprint == second.fingerprint
    for each in (module, other):
        each.redraw()
    assert torch.equal(other(*x), module(*x))
    assert all(isinstance(part, torch.Tensor) for part in module.state_dict().values())


@pytest.mark.parametrize("estimator", ["positive", "phase"])
@pytest.mark.parametrize("learnable", [False, True])
def test_a_module_without_memory_is_given_its_draw(learnable, estimator):
    """huggingface/transformers#45902: after `to_empty` a buffer that is computed held what memory had held."""
    given = {"estimator": estimator, "learnable": learnable, "seed": 3}
    with torch.device("meta"):
        module = favor(**given)
    module = module.to_empty(device="cpu")
    module.omega.data.fill_(7)
    module.reset_parameters()
    x, wanted = heads(), favor(**given)
    torch.testing.assert_close(module(*x), wanted(*x), rtol=1e-4, atol=1e-5)  # whose draw was rounded to float32
    for each in (module, wanted):
        each.redraw()
    assert torch.equal(module(*x), wanted(*x))


@pytest.mark.slow  # the guide exports one in the usual run
def test_an_exported_module_needs_no_kernattn():
    """Of the reference a graph holds array operations and numbers, and gives what the module gives."""
    module = FavorAttention(ka.kernels.Softmax(), D, 8, causal=True, backend="reference")
    given = tuple(x.float() for x in heads(H))
    exported = torch.export.export(module, given)
    assert not any("kernattn" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(*given), module(*given), rtol=0, atol=1e-6)
    torch.testing.assert_close(module(*given), FavorAttention(ka.kernels.Softmax(), D, 8, causal=True)(*given))
    with pytest.raises(ParameterError, match="backend must be None or one of"):
        LinearAttention(backend="fast")


ELSEWHERE = """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
given = np.load(sys.argv[2])
out = session.run(None, {each.name: given[name] for each, name in zip(session.get_inputs(), "qkv", strict=True)})
np.save(sys.argv[3], out[0])
assert "kernattn" not in sys.modules and "torch" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # of PyTorch's exporter
@pytest.mark.parametrize("causal", [False, True])
def test_a_module_runs_in_onnx_runtime_in_another_process(causal, tmp_path):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    files = [str(tmp_path / name) for name in ("model.onnx", "given.npz", "out.npy")]
    module = FavorAttention(ka.kernels.Softmax(), 16, 32, causal=causal, backend="reference").eval()
    given = torch.randn(3, 2, 4, 20, 16, generator=torch.Generator().manual_seed(0)).unbind()
    torch.onnx.export(module, given, files[0], dynamo=True, verbose=False)
    np.savez(files[1], **{name: x.numpy() for name, x in zip("qkv", given, strict=True)})
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True, cwd=tmp_path)
    np.testing.assert_allclose(np.load(files[2]), module(*given).detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("learnable", [False, True])
def test_a_module_is_made_where_and_as_it_is_told(learnable):
    """As PyTorch's own modules are; without a word they have PyTorch's defaults."""
    given = {"num_features": 8, "estimator": "phase", "learnable": learnable}
    wide = FavorAttention(ka.kernels.Softmax(), D, **given, dtype=torch.float64)
    assert wide.omega.dtype == wide.offset.dtype == torch.float64
    torch.testing.assert_close(wide.omega.float(), FavorAttention(ka.kernels.Softmax(), D, **given).omega)
    assert FavorAttention(ka.kernels.Softmax(), D, **given, device="meta").omega.is_meta
    with pytest.raises(DTypeError, match=r"dtype must be a floating dtype of PyTorch, or None; got torch\.int32"):
        FavorAttention(ka.kernels.Softmax(), D, **given, dtype=torch.int32)


def test_what_is_drawn_without_gradients_is_for_training_too():
    """pytorch/pytorch#135892: what was made in inference mode was kept, and training met it."""
    module, x = favor(redraw_interval=2).train(), heads()
    with torch.inference_mode():
        module.redraw()
        module(*x)
    x[0].requires_grad_()
    module(*x).sum().backward()
    assert torch.isfinite(x[0].grad).all()


def test_what_is_learnt_has_gradients():
    x = heads()
    fixed, learnt = favor(), favor(learnable=True)
    assert list(fixed.parameters()) == []
    assert [name for name, _ in learnt.named_parameters()] == ["omega"]
    torch.testing.assert_close(fixed(*x), learnt(*x), rtol=0, atol=0)
    g = torch.randn(B, H, N, E, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    (learnt(*x) * g).sum().backward()
    step = 1e-6 * torch.randn(learnt.omega.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        learnt.omega += step
        up = (learnt(*x) * g).sum()
        learnt.omega -= 2 * step
        down = (learnt(*x) * g).sum()
    torch.testing.assert_close((learnt.omega.grad * step).sum(), (up - down) / 2, rtol=1e-5, atol=1e-12)


@KINDS
def test_dtypes(kind):
    exact = made(kind)(*heads())
    for dtype, digits in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        module = made(kind).to(dtype)
        out = module(*heads(dtype=dtype))
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, rtol=digits, atol=2 * digits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = made(kind).float()(*heads(dtype=torch.float32))
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), exact, rtol=5e-2, atol=1e-1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": "softmax"}, DTypeError, "kernel"),
        ({"dim": 0}, ParameterError, "dim must be a positive integer"),
        ({"num_features": 0}, ParameterError, "num_features must be a positive integer"),
        ({"projection": "hadamard"}, ParameterError, "frequencies that are a matrix"),
        ({"estimator": "favor_sharp"}, ParameterError, "data"),
        ({"causal": 1}, ParameterError, "causal must be True or False; got 1"),
        ({"learnable": 1}, ParameterError, "learnable must be True or False; got 1"),
        ({"redraw_interval": 0}, ParameterError, "redraw_interval must be a positive integer"),
        ({"redraw_interval": 2, "learnable": True}, ParameterError, "redraw_interval must be None for learnable"),
        ({"seed": -1}, ParameterError, "seed must be a non-negative integer"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        favor(**arguments)


@pytest.mark.parametrize(
    "state", [torch.zeros(2, dtype=torch.int64), torch.zeros(3), torch.tensor([0, -1, 0]), [0, 0, 0]]
)
def test_what_was_saved_is_checked(state):
    module = favor()
    saved = module.state_dict() | {"_extra_state": state}
    with pytest.raises(ParameterError, match="_extra_state must hold a seed, redraws and calls"):
        module.load_state_dict(saved)


def test_tensors_are_checked():
    module, (q, k, v) = LinearAttention(), heads()
    with pytest.raises(DTypeError, match=r"phi must be a FeatureMap, such as .*elu1\(\)"):
        LinearAttention("elu1")
    for name, told in (("rng", "seed here"), ("nb_features", "num_features here"), ("is_causal", "causal here")):
        with pytest.raises(TypeError, match=rf"FavorAttention\(\) got .* {name!r}: that is {told}"):
            FavorAttention(**{name: 1})
    with pytest.raises(ShapeError, match=r"q must be \(batch, heads, n, d\)"):
        module(q[0], k, v)
    with pytest.raises(ShapeError, match=r"key_mask must be \(batch, l\)"):
        module(q, k, v, key_mask=torch.ones((B, H, N), dtype=torch.bool))
    with pytest.raises(ShapeError, match="got 4 for q, 3 for k and 3 for v"):
        module(q, k[:, :3], v[:, :3])
    with pytest.raises(ParameterError, match="causal=False"):
        module.decode(q, k, v)


def test_a_module_says_what_it_is():
    text = repr(favor())
    assert "Softmax" in text
    assert "causal=True" in text
    assert "tensor" not in text
    assert repr(LinearAttention()).startswith("LinearAttention(")


@pytest.fixture(scope="module")
def recall():
    return runpy.run_path(str(ROOT / "examples" / "plot_recall.py"))["losses"]


def last(found):
    return float(np.mean(found[-20:]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_learnt_recalls_better(recall, seed):
    uniform, fixed, learnt = (
        last(recall(name, seed, 150)) for name in ("uniform", "fixed features", "learnt features")
    )
    assert fixed < uniform - 0.1
    assert learnt < fixed - 0.3


@KINDS
def test_compiled_modules(kind):
    module = made(kind, **({"learnable": True} if kind == "favor" else {}))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = [each.requires_grad_() for each in heads(2)]
    torch.testing.assert_close(compiled(*x), module(*x))
    leaves = [*x, *module.parameters()]
    found, expected = (torch.autograd.grad(run(*x).square().sum(), leaves) for run in (compiled, module))
    for ours, own in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, own)
    if kind == "favor":
        module.redraw()
        torch.testing.assert_close(compiled(*x), module(*x))


def test_compiled_training_in_bfloat16_recalls(recall):
    compiled = {"fullgraph": True, "backend": "aot_eager"}
    uniform = last(recall("uniform", 0, 60))
    assert last(recall("learnt features", 0, 60, compiled, low=True)) < uniform - 0.3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # of inductor itself
def test_training_by_the_usual_compiler(recall):
    uniform = last(recall("uniform", 0, 150))
    assert last(recall("learnt features", 0, 150, {"fullgraph": True}, low=True)) < uniform - 0.6
