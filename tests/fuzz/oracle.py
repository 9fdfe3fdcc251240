"""Attention from its definition, a weight for each pair, in float64 and with logarithms apart; it knows no kernattn."""

import numpy as np


def log_features(x, kind, omega=None, scale=1.0, phase=None):
    """Return of each feature the logarithm of its size, its sign, and the logarithm of what rounding is relative to."""
    logs, sign, bound = _log_features(np.asarray(x, np.float64), kind, omega, scale, phase)
    return logs, sign, logs if bound is None else np.broadcast_to(bound, logs.shape)


def _log_features(x, kind, omega, scale, phase):
    with np.errstate(divide="ignore"):
        if kind == "elu1":
            return np.where(x > 0, np.log1p(np.maximum(x, 0)), np.minimum(x, 0)), np.ones_like(x), None
        if kind == "relu":
            return np.log(np.maximum(x, 0)), np.ones_like(x), None
        if kind == "exp":
            return x, np.ones_like(x), None
        u = (scale * x) @ omega.T
        half = np.sum((scale * x) ** 2, axis=-1, keepdims=True) / 2
        if kind == "positive":
            return u - half, np.ones_like(u), None
        if kind == "hyperbolic":
            return np.concatenate([u, -u], axis=-1) - half, np.ones((len(x), 2 * u.shape[-1])), None
        waves = np.cos(u + phase) if kind == "phase" else np.concatenate([np.cos(u), np.sin(u)], axis=-1)
        return np.log(np.abs(waves)) + half, np.sign(waves), half


def seen(n, causal, key_mask=None, segments=None):
    """Return which key each query sees, (n, n) or of any shape that the mask broadcasts to."""
    pairs = np.tril(np.ones((n, n), bool)) if causal else np.ones((n, n), bool)
    if key_mask is not None:
        pairs = pairs & np.asarray(key_mask)[None, :]
    if segments is not None:
        runs = np.cumsum(np.concatenate([[0], np.asarray(segments)[1:] != np.asarray(segments)[:-1]]))
        pairs = pairs & (runs[:, None] == runs[None, :])
    return pairs


def vanishing(q_logs, k_logs, pairs, octaves):
    """Return by how much of itself each row moves where features that far below the largest of a row count as 0."""
    lost = np.full(len(q_logs), np.inf)
    for i in range(len(q_logs)):
        keys = k_logs[pairs[i]]
        if len(keys) and np.isfinite(total := np.max(q_logs[i] + keys)):
            most = max(np.max(q_logs[i]) + np.max(keys), total)
            lost[i] = np.exp(np.minimum(most - octaves * np.log(2) - total, 700)) * 2 * keys.size
    return lost


def attention(q_features, k_features, v, pairs):
    """Return the outputs of one head, and how far rounding of the weights by a relative 1 moves each row of them."""
    (log_q, sign_q, bound_q), (log_k, sign_k, bound_k), v = q_features, k_features, np.asarray(v, np.float64)
    out, reach = np.zeros((len(log_q), v.shape[1])), np.zeros(len(log_q))
    for i in range(len(log_q)):
        logs = log_q[i] + log_k  # (l, M)
        peak = np.max(np.where(pairs[i][:, None], logs, -np.inf), initial=-np.inf)
        if not np.isfinite(peak):
            continue
        terms = np.where(pairs[i][:, None], np.exp(np.minimum(logs - peak, 0.0)), 0.0)
        weights = np.sum(terms * sign_q[i] * sign_k, axis=1)
        with np.errstate(over="ignore"):
            size = np.sum(np.where(pairs[i][:, None], np.exp(bound_q[i] + bound_k - peak), 0.0))
        total = np.sum(weights)
        out[i] = weights @ v / total if total else 0.0
        reach[i] = np.inf if total == 0 else size / abs(total) * np.max(np.abs(v[pairs[i]]), initial=0.0)
    return out, reach
