"""An engineer who serves sessions: they come and go in one batch, pause in files, and get what they get alone."""

import tempfile
from pathlib import Path

import numpy as np

import kernattn as ka

HEADS, DIM, ROWS = 2, 8, 4


def tokens(session, first, count):
    """Return q, k and v (heads, tokens, dim) of a session from one of its tokens on."""
    draws = [
        np.random.default_rng([session, at]).standard_normal((3, HEADS, DIM)) for at in range(first, first + count)
    ]
    return np.moveaxis(np.array(draws), 0, 2)


def main(folder):
    """Serve four sessions, of which one pauses and another takes its row."""
    phi = ka.random_features(ka.kernels.Softmax(), DIM, 16, "positive", rng=0)
    prompts = [ka.key_state(*tokens(session, 0, 3 + session)[1:], phi) for session in range(ROWS)]
    batch, seen, sessions = ka.stack_states(prompts), [3 + session for session in range(ROWS)], list(range(ROWS))
    paused = {}
    for turn in range(12):
        if turn == 4:  # session 1 pauses, and session 9 takes its row
            ka.save_state(ka.take_states(batch, 1), folder / "paused.npz")
            paused[sessions[1]] = seen[1]
            sessions[1], seen[1] = 9, 5
            batch = ka.put_states(batch, 1, ka.key_state(*tokens(9, 0, 5)[1:], phi), reuse_state=True)
        if turn == 8:  # it comes back, in another row and, with the map of a file, in another process
            phi.save(folder / "map.npz")
            phi = ka.load(folder / "map.npz")
            sessions[2], seen[2] = 1, paused.pop(1)
            batch = ka.put_states(batch, 2, ka.load_state(folder / "paused.npz"))
        q, k, v = np.stack([tokens(*each, 1)[:, :, 0] for each in zip(sessions, seen, strict=True)], axis=1)
        out, batch = ka.linear_attention_step(batch, q, k, v, phi, reuse_state=True)
        for row, session in enumerate(sessions):
            seen[row] += 1
            alone, _ = ka.causal_linear_attention(*tokens(session, 0, seen[row]), phi)
            np.testing.assert_allclose(out[row], alone[:, -1], rtol=1e-8)
    assert batch.s.nbytes == ROWS * HEADS * 16 * DIM * 8
    narrow = ka.move_states(batch, q.astype(np.float32))  # half the memory, from here on
    small, narrow = ka.linear_attention_step(narrow, *(x.astype(np.float32) for x in (q, k, v)), phi)
    out, _ = ka.linear_attention_step(batch, q, k, v, phi)
    assert narrow.s.nbytes == batch.s.nbytes // 2
    np.testing.assert_allclose(small, out, rtol=1e-3, atol=1e-5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
