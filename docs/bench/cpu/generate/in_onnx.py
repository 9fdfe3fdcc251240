"""A step with keys and values kept, in ONNX Runtime: the strongest engine for it that we know, beside our own.

Its operator GroupQueryAttention takes q, k and v of a token as one product, and writes to keys and values in place:
inputs and outputs are the same memory. The graph is made node by node.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.cpu import peers
from bench.cpu.generate.in_torch import fitting
from kernattn._runtime.parallel import threads
from kernattn.bench._clock import Call
from kernattn.transformer import Config
from kernattn.transformer._parts import Params

OPSETS = {"": 20, "com.microsoft": 1}
FORMAT = 10  # of the file: the version that came with opset 20 or a later one


def is_installed() -> bool:
    """Tell whether ONNX Runtime can be raced: it, and the package that writes graphs for it."""
    return peers.have("onnxruntime") and peers.have("onnx")


class _Graph:
    """Nodes in order, and the numbers that they hold."""

    def __init__(self, params: Params, config: Config) -> None:
        self.onnx, self.params, self.config = import_module("onnx"), params, config
        self.nodes: list[Any] = []
        self.numbers: list[Any] = []

    def number(self, array: NDArray[Any]) -> str:
        name = f"number {len(self.numbers)}"
        self.numbers.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind: str, *given: str, out: tuple[str, ...] = (), domain: str = "", **how: Any) -> str:
        """Add a node, and return the name of its first output."""
        names = out or (f"node {len(self.nodes)}",)
        self.nodes.append(self.onnx.helper.make_node(kind, given, names, domain=domain, **how))
        return names[0]

    def linear(self, x: str, *names: str, out: tuple[str, ...] = ()) -> str:
        """Add linear maps beside each other as one."""
        weight = np.concatenate([self.params[f"{name}.weight"] for name in names], axis=1)
        bias = np.concatenate([self.params[f"{name}.bias"] for name in names])
        return self.node("Add", self.node("MatMul", x, self.number(weight)), self.number(bias), out=out)

    def norm(self, x: str, name: str) -> str:
        scale, bias = (self.number(self.params[f"{name}.{part}"]) for part in ("scale", "bias"))
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.config.eps)

    def take(self, table: str, at: str) -> str:
        return self.node("Gather", self.number(self.params[table]), at)

    def step(self) -> None:
        """Add all nodes of a step, from the inputs "x", "position", "before" and "tokens" to "logits"."""
        heads = self.config.heads
        rows = self.node("Add", self.take("embed.tokens", "x"), self.take("embed.positions", "position"))
        for i in range(self.config.layers):
            name = f"layers.{i}.attention"
            qkv = self.linear(self.norm(rows, f"{name}.norm"), *(f"{name}.{part}" for part in "qkv"))
            given = (qkv, "", "", f"k{i}", f"v{i}", "before", "tokens")
            out = (f"attended {i}", f"k{i} after", f"v{i} after")
            attended = self.node(
                "GroupQueryAttention", *given, out=out, domain="com.microsoft", num_heads=heads, kv_num_heads=heads
            )
            rows = self.node("Add", rows, self.linear(attended, f"{name}.out"))
            name = f"layers.{i}.feed_forward"
            up = self.node("Gelu", self.linear(self.norm(rows, f"{name}.norm"), f"{name}.up"))
            rows = self.node("Add", rows, self.linear(up, f"{name}.down"))
        self.linear(self.norm(rows, "norm"), "output", out=("logits",))

    def write(self, shape: tuple[int, ...]) -> bytes:
        """Return the model, for keys and values of a shape."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        batch, wide = shape[0], range(self.config.layers)

        def told(name: str, kind: int, *sizes: int) -> Any:
            return helper.make_tensor_value_info(name, kind, sizes)

        inputs = [told("x", kinds.INT64, batch, 1), told("position", kinds.INT64, 1)]
        inputs += [told("before", kinds.INT32, batch), told("tokens", kinds.INT32)]
        inputs += [told(f"{part}{i}", kinds.FLOAT, *shape) for i in wide for part in "kv"]
        outputs = [told(f"{part}{i} after", kinds.FLOAT, *shape) for i in wide for part in "kv"]
        outputs += [told("logits", kinds.FLOAT, batch, 1, len(self.params["output.bias"]))]
        graph = helper.make_graph(self.nodes, "step", inputs, outputs, self.numbers)
        opsets = [helper.make_opsetid(*each) for each in OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=FORMAT)
        return bytes(model.SerializeToString())


def cached(
    params: Params, config: Config, tokens: NDArray[Any], keys: NDArray[Any], values: NDArray[Any], room: int
) -> Call:
    """Return the logits of a token (B,) after so many keys and values (B, h, t, d), the same in all layers."""
    runtime, t = import_module("onnxruntime"), keys.shape[-2]
    shape = (*keys.shape[:2], room, keys.shape[-1])
    graph = _Graph(params, config)
    graph.step()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = runtime.InferenceSession(graph.write(shape), options, providers=["CPUExecutionProvider"])
    bound = session.io_binding()
    given: dict[str, NDArray[Any]] = {
        "x": tokens[:, None].astype(np.int64),
        "position": np.array([t]),
        "before": np.full(len(tokens), t, np.int32),
        "tokens": np.array(t + 1, np.int32),
    }
    for name, array in given.items():
        bound.bind_cpu_input(name, array)
    caches: list[dict[str, Any]] = []
    for _ in range(fitting(config.layers, shape)):
        caches.append({})
        for part, rows in (("k", keys), ("v", values)):
            whole = np.zeros(shape, np.float32)
            whole[:, :, :t] = rows
            caches[-1][part] = runtime.OrtValue.ortvalue_from_numpy(whole)
    for i in range(config.layers):
        for part, cache in caches[i % len(caches)].items():
            bound.bind_ortvalue_input(f"{part}{i}", cache)
            bound.bind_ortvalue_output(f"{part}{i} after", cache)
    logits = np.empty((len(tokens), 1, len(params["output.bias"])), np.float32)
    bound.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
    kept = given, caches  # the session has their addresses alone

    def call() -> Any:
        assert kept
        session.run_with_iobinding(bound)
        return logits[:, 0]

    return call
