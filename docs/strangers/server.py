"""An engineer who serves sessions: they come and go in one batch, pause, forget, and get what they get alone."""

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
    forget(phi)
    serve_models(folder)


def serve_models(folder):
    """Serve a whole model: a prompt takes a row of the decoder, and gets what it gets alone, after a restart too."""
    config = ka.transformer.Config(vocab=11, layers=1, heads=HEADS, dim=16, length=32)
    params, how = ka.transformer.initial_params(config, rng=0), {"attention": ka.features.elu1()}
    decoder, alone = (ka.transformer.Decoder(params, config, **how) for _ in range(2))
    decoder.prefill(np.array([[1, 2, 3], [4, 5, 6]]))
    _, state = ka.transformer.prefill(params, config, np.array([[7, 8, 9, 10]]), **how)
    decoder.put([0], state)
    alone.begin(state)
    for token in (2, 5):
        np.testing.assert_array_equal(decoder.step(np.array([token, 1]))[0], alone.step(np.array([token]))[0])
    ka.save_state(decoder.take(slice(None)), folder / "sessions.npz")
    again = ka.transformer.Decoder(params, config, **how)
    again.begin(ka.load_state(folder / "sessions.npz"))
    np.testing.assert_array_equal(again.step(np.array([3, 1]))[0], alone.step(np.array([3]))[0])


def forget(phi):
    """Where sums of float32 would stop to take tokens, a gate keeps a share of each: here an eighth."""
    q, k, v = (x.astype(np.float32) for x in tokens(0, 0, 1))
    alike, gate = np.repeat(k, 256, axis=1), np.full((HEADS, 1), np.log1p(-1 / 8), np.float32)
    token, state = ka.key_state(k, v, phi), ka.key_state(alike, np.ones_like(alike), phi)
    for _ in range(24):
        state = ka.merge_states(state, state)
    _, stuck = ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi)
    np.testing.assert_array_equal(stuck.z, state.z)
    _, state = ka.causal_linear_attention(alike, alike, np.ones_like(alike), phi, state=state, g=gate)
    np.testing.assert_allclose(token.z * np.exp(token.peak - state.peak) / state.z, 1 / 8, rtol=0.01)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
