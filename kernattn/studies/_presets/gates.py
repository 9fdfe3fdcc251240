"""Whether gated linear attention keeps its digits where gates are strong: by chunks and by tokens, against float64."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.extras import require
from kernattn.attention import gated_linear_attention
from kernattn.metrics import median_and_ci
from kernattn.studies._means import FEWEST_OF_MEDIANS
from kernattn.studies._palette import BLUE, GREY, OLIVE, VERMILION, Look
from kernattn.studies._panels import draw_bars, read_interval, sort_by
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Ratio, Tally, Verdict
from kernattn.studies._records import Record, names, select, with_intervals
from kernattn.studies._sweep import Cell, Sweep

HEADS, DIM, CHUNK = 2, 32, 64
DRAWS = 8
UNIT = 2.0**-24  # roundoff of float32
LEVEL = 1e-6  # of the largest output
RULES = ("decay", "delta")
GATES = ("head", "channel")
STRENGTHS = {  # gates above, and three strong ones among them
    "none": (0.0, None),
    "slow": (2e-6, None),
    "mild": (0.1, None),
    "strong": (0.1, -1e3),
    "extreme": (0.1, -1e4),
    "reset": (0.1, -np.inf),
}
METHODS = ("recurrence", "differences", "kernattn", "transformers")
SPELLED = {
    "decay": "plain",
    "delta": "delta rule",
    "head": "one gate a head",
    "channel": "a gate for each channel",
}
Inputs = tuple[Array, Array, Array, Array, Array | None]  # q, k, v, logs (H, n, 1 | d), beta


def sweep(**asked: Any) -> Sweep:
    """Return the design: normal values, keys of norm 1, gates of which three tokens have strong ones."""
    options = Options(**asked)
    full = {"rule": RULES, "gates": GATES, "strength": tuple(STRENGTHS), "n": (64, 512, 4096), "method": METHODS[:3]}
    small = {"strength": ("mild", "extreme", "reset"), "n": (64, 128)}
    chosen = options.choose_axes(full, small, {"rule": RULES, "gates": GATES, "strength": STRENGTHS, "method": METHODS})
    return Sweep(
        "gates",
        chosen,
        trial,
        lambda cell: {"where": f"{SPELLED[cell['rule']]}, {SPELLED[cell['gates']]}"},
        keep=lambda cell: cell["method"] != "transformers" or (cell["rule"], cell["gates"]) == ("delta", "head"),
        paired=("method",),
        stop=options.stop(DRAWS, 6, least=FEWEST_OF_MEDIANS),
        seed=options.seed,
        reduce=_reduce,
        prepare=lambda: measure("kernattn", draw("delta", "channel", "mild", 4, 0)),
    )


def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
    """Return the error of the worst output over the largest one, infinity where one is not finite."""
    given, exact = problem(cell["rule"], cell["gates"], cell["strength"], cell["n"], int(rng.integers(2**63)))
    out = measure(cell["method"], given).astype(np.float64)
    finite = np.isfinite(out)
    worst = np.max(np.abs(out - exact)) / np.max(np.abs(exact)) if finite.all() else np.inf
    return {"error": worst, "finite": np.mean(finite)}


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**with_intervals(median_and_ci, error=draws["error"]), "finite": float(np.mean(draws["finite"]))}


def draw(rule: str, gates: str, strength: str, n: int, seed: int) -> Inputs:
    """Return float32 inputs; the strong gates of all heads and channels are at the same three tokens."""
    rng, (most, strong) = np.random.default_rng(seed), STRENGTHS[strength]
    q, k, v = rng.standard_normal((3, HEADS, n, DIM))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    logs = -rng.uniform(0, most, (HEADS, n, DIM if gates == "channel" else 1))
    if strong is not None:
        logs[:, rng.choice(n, 3, replace=False)] = strong
    beta = rng.uniform(0, 1, (HEADS, n, 1)) if rule == "delta" else None
    single = [x.astype(np.float32) for x in (q / DIM**0.5, k, v, logs)]
    return single[0], single[1], single[2], single[3], None if beta is None else beta.astype(np.float32)


@lru_cache(maxsize=DRAWS)  # which all methods have in common
def problem(rule: str, gates: str, strength: str, n: int, seed: int) -> tuple[Inputs, Float64]:
    """Return inputs and the outputs of the recurrence in float64."""
    given = draw(rule, gates, strength, n, seed)
    return given, recur(*(None if x is None else x.astype(np.float64) for x in given))


def measure(method: str, given: Inputs) -> Array:
    """Return outputs in float32."""
    if method == "recurrence":
        return recur(*given)
    if method == "differences":
        with np.errstate(invalid="ignore"):
            return chunk_by_differences(*given)
    q, k, v, logs, beta = given
    if method == "transformers" and beta is not None:
        return _transformers(q, k, v, logs[..., 0], beta[..., 0])
    own = {"g": logs[..., 0]} if logs.shape[-1] == 1 else {"gk": logs}
    own |= {} if beta is None else {"beta": beta[..., 0]}
    return gated_linear_attention(q, k, v, **own, scale=1.0)[0]


def recur(q: Array, k: Array, v: Array, logs: Array, beta: Array | None) -> Array:
    """Return outputs (H, n, e) token by token, in the dtype of the inputs."""
    state, out = np.zeros((len(k), k.shape[-1], v.shape[-1]), v.dtype), np.empty_like(v)
    for t in range(v.shape[-2]):
        state = np.exp(logs[:, t, :, None]) * state
        new = v[:, t, None] if beta is None else beta[:, t, None] * (v[:, t, None] - k[:, t, None] @ state)
        state = state + k[:, t, :, None] * new
        out[:, t] = (q[:, t, None] @ state)[:, 0]
    return out


def chunk_by_differences(q: Array, k: Array, v: Array, logs: Array, beta: Array | None) -> Array:
    r"""Return outputs by chunks, of decays e to differences of cumulative sums within a chunk, as the papers write it.

    With :math:`G_i = \sum_{s \le i} g_s`, decays are :math:`e^{G_i - G_j}`; the inverse of the delta rule's unit
    triangular matrix is formed by substitution, and serves values and keys.
    """
    state, out = np.zeros((len(k), k.shape[-1], v.shape[-1]), v.dtype), np.empty_like(v)
    for start in range(0, v.shape[-2], CHUNK):
        at = slice(start, start + CHUNK)
        total = np.cumsum(logs[:, at], axis=1)
        size = total.shape[1]
        seen = np.tri(size, dtype=bool)[:, :, None]
        decay = np.exp(np.where(seen, total[:, :, None] - total[:, None], -np.inf))
        keys, values, since = k[:, at], v[:, at], np.exp(total)
        if beta is not None:
            values = beta[:, at] * values
            m = np.tril(_pair(beta[:, at] * keys, decay, keys), -1)
            inverse = _invert(m)
            values = inverse @ values - (inverse @ (beta[:, at] * keys * since)) @ state
        out[:, at] = (q[:, at] * since) @ state + _pair(q[:, at], decay, keys) @ values
        left = np.exp(total[:, -1:] - total)
        state = np.swapaxes(since[:, -1:], 1, 2) * state + np.swapaxes(keys * left, 1, 2) @ values
    return out


def _pair(x: Array, decay: Array, y: Array) -> Array:
    """Return sum_c x_ic decay_ijc y_jc (H, C, C)."""
    if decay.shape[-1] == 1:
        return (x @ np.swapaxes(y, 1, 2)) * decay[..., 0]
    return np.einsum("hic,hijc,hjc->hij", x, decay, y)


def _invert(m: Array) -> Array:
    """Return (I + m)^-1 of a matrix below its diagonal, row after row."""
    inverse = -m
    for i in range(1, m.shape[-1]):
        inverse[:, i, :i] += (inverse[:, i, None, :i] @ inverse[:, :i, :i])[:, 0]
    return inverse + np.eye(m.shape[-1], dtype=m.dtype)


def _transformers(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    """Return the outputs of Qwen3-Next's function for CPUs, which takes (batch, n, heads, d) and scales by d^-1/2."""
    torch = require("torch", "PyTorch", "the method transformers")
    require("transformers", "transformers", "the method transformers")
    module = import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    run = getattr(module.torch_chunk_gated_delta_rule, "__wrapped__", module.torch_chunk_gated_delta_rule)
    rows = [torch.from_numpy(np.swapaxes(x, 0, 1)[None].copy()) for x in (q * np.float32(DIM**0.5), k, v, g, beta)]
    with torch.inference_mode():
        return np.swapaxes(run(*rows, chunk_size=CHUNK)[0][0].numpy(), 0, 1)


SPOKEN = {
    "recurrence": "the recurrence of tokens in float32",
    "differences": "chunks by differences of cumulative sums",
    "kernattn": "kernattn",
    "transformers": "transformers' chunks",
}
KINDS = {
    "none": "no gates",
    "slow": "gates above -2e-6",
    "mild": "gates above -0.1",
    "strong": "three gates of -1e3",
    "extreme": "three gates of -1e4",
    "reset": "three gates of -inf",
}
TICKS = {"none": "none", "slow": "> -2e-6", "mild": "> -0.1", "strong": "-1e3", "extreme": "-1e4", "reset": "-inf"}


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge which gates leave each method its digits; those of which the same is found make one verdict."""
    return [told for method in names(records, "method") for told in _judge(select(records, method=method), records)]


def _judge(mine: Sequence[Record], records: Sequence[Record]) -> list[Verdict]:
    by_word: dict[str, list[Record]] = {}
    for strength in names(mine, "strength"):
        alike = select(mine, strength=strength)
        by_word.setdefault(_count(alike).word, []).extend(alike)
    judged = []
    for alike in by_word.values():
        lost = [r for r in alike if r["error"] is None]
        kinds = [KINDS[s] for s in names(alike, "strength")]
        which = "any gates" if len(kinds) == len(KINDS) else ", ".join(kinds)
        ratios = [ratio for r in alike if r["error"] is not None for ratio in _over_tokens(r, records)]
        judged.append(
            Verdict(
                "outputs are right to 1e-6 of the largest",
                f"outputs are not all finite in {len(lost)} of {len(alike)} settings" if lost else "",
                where=f"for {SPOKEN[mine[0]['method']]}, {which}",
                tally=_count(alike),
                ratio=Ratio("the error over that of the recurrence in float32", ratios) if ratios else None,
            )
        )
    return judged


def _count(records: Sequence[Record]) -> Tally:
    """Count the settings whose interval lies below the level, above it or at infinity, and across it."""
    low, high = (
        [np.inf if r[f"error_{end}"] is None else r[f"error_{end}"] for r in records] for end in ("low", "high")
    )
    holding, against = sum(x < LEVEL for x in high), sum(x > LEVEL for x in low)
    return Tally(holding, against, len(records) - holding - against, "settings (rule, gates, n)")


def _over_tokens(record: Record, records: Sequence[Record]) -> list[float]:
    same = {axis: record[axis] for axis in ("rule", "gates", "strength", "n")}
    if record["method"] == "recurrence":
        return []
    return [record["error"] / r["error"] for r in select(records, method="recurrence", **same)]


LOOKS: dict[str, Look] = {
    "recurrence": {"color": GREY, "marker": "^", "markerfacecolor": "white"},
    "differences": {"color": VERMILION, "marker": "s"},
    "kernattn": {"color": BLUE, "marker": "o"},
    "transformers": {"color": OLIVE, "marker": "D", "markerfacecolor": "white"},
}


def draw_error(records: Sequence[Record], ax: Any) -> None:
    """Draw the error for each kind of gates, lengths side by side; NaN stands at the top."""
    kinds, lengths, methods = names(records, "strength"), sorted(names(records, "n")), names(records, "method")
    ax.set(yscale="log", ylim=(UNIT / 2, 3), ylabel="largest error over largest output", xlim=(-0.6, len(kinds) - 0.4))
    ax.set_xticks(range(len(kinds)), [TICKS[kind] for kind in kinds])
    side = f"; n = {', '.join(map(str, lengths))}, from left to right" if len(lengths) > 1 else f"; n = {lengths[0]}"
    ax.set_xlabel(f"gates{side}")
    ax.set_title(records[0]["where"])
    ax.axhline(UNIT, color=GREY, linestyle=":", linewidth=1.0, label="roundoff of float32")
    ax.axhline(LEVEL, color=GREY, linestyle="--", linewidth=1.0, label="1e-6")
    for place, method in enumerate(methods):
        look = {"markersize": 4.0, "linestyle": "none"} | LOOKS[method]
        ax.plot([], [], label=SPOKEN[method], **look)
        for at, kind in enumerate(kinds):
            line = sort_by(select(records, method=method, strength=kind), "n")
            x = [at + 0.26 * (place - (len(methods) - 1) / 2) + 0.07 * lengths.index(r["n"]) - 0.07 for r in line]
            draw_bars(ax, x, read_interval(line, "error"), look)
            lost = [each for each, r in zip(x, line, strict=True) if r["error"] is None]
            ax.plot(lost, [1.0] * len(lost), **look)
            if lost:
                ax.annotate("NaN", (lost[-1], 1.0), xytext=(4, -2), textcoords="offset points", color=look["color"])


GATED_DIGITS = Preset(
    title="Digits that strong gates cost gated linear attention",
    claim="The recurrence of gated linear attention can be computed by chunks of tokens, with decays e to differences "
    "of cumulative sums of logs (Yang et al. 2024), for the delta rule with the inverse of a triangular matrix "
    "(Yang, Kautz and Hatamizadeh 2024). Is that form as exact as the recurrence? The minimal code of Dao and Gu "
    "(2024) sums over the segment between two tokens, to be more stable; its decays to the end of a chunk "
    "are differences.",
    cost="quick 4, full 80 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.gates:sweep",
    verdicts=verdicts,
    formula=r"S_t = (I - \beta_t k_t k_t^T)\, \mathrm{diag}(e^{g_t}) S_{t-1} + \beta_t k_t v_t^T, \quad "
    r"\prod_{j < s \le i} e^{g_s} = e^{G_i - G_j}, \quad G_i = \sum_{s \le i} g_s",
    figures={
        "error": Figure(
            "Errors of gated linear attention in float32, over how strong the gates are",
            f"Largest error over the largest output in float64, of keys of {DIM} dimensions: median over the redraws "
            f"with its 95% interval, lengths from left to right. Chunks by differences have {CHUNK} tokens. "
            "Gates, logs of decays, are uniform between 0 and what the axis says; -1e3, -1e4, -inf: three such gates "
            "among those above -0.1",
            draw_error,
            by="where",
            shows="for (?:chunks|kernattn)",
        )
    },
    made="gates of chosen strengths",
)
