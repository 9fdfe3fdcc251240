r"""One token of attention that is exact on the last w and by features before them, under one normaliser.

``window_step(state, k_before, v_before, present, q, k, v, q_spec, k_spec, scale, key_mask, near_bias)`` ->
(out (..., e), state, k_after, v_after, present). state is the :class:`kernattn._sums.peaked.PeakedSum` of what has left
the window; k_before (..., w, d), v_before (..., w, e) and present (..., w) bool the window, w at least 1, whose oldest
token enters the sums; q, k (..., d) and v (..., e) the token, and the specs of their maps; key_mask None or (...) bool,
elsewhere all stays and the output is 0; near_bias None or (...), of the leading axes of out. Nothing is written into.
The loop raises :class:`kernattn._arrays.replay.Extreme` where a score or an output is no number or near the end of
floats: `hybrid` takes all.
"""

from kernattn.ops.dispatch import Op

OP = Op("window_step", ("reference", "cpu"))
