"""The example of a server: clients that come and go get the tokens that their prompts give alone."""

import asyncio
import json
import runpy

import numpy as np
import pytest

import kernattn as ka
from kernattn.transformer import Config, generate, initial_params
from quality.tree import ROOT

pytest.importorskip("numba")


@pytest.fixture(scope="module")
def names():
    return runpy.run_path(str(ROOT / "examples" / "serving.py"))


@pytest.fixture(scope="module")
def model():
    config = Config(dim=16, layers=2, heads=2, vocab=13, positions="rotary")
    return {name: 3 * x for name, x in initial_params(config, rng=0).items()}, config, ka.features.elu1()


async def ask(port, line, most=None):
    """Return what a client reads, that goes after so many lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line + b"\n")
    found = []
    while most is None or len(found) < most:
        answer = await reader.readline()
        if not answer:
            break
        found.append(json.loads(answer))
    writer.close()
    return found


def serve(names, model, rows, clients):
    """Return what clients get of a server that ends with them."""

    async def all_of_it():
        server, port = names["Server"](*model, rows), asyncio.get_running_loop().create_future()
        running = asyncio.create_task(names["serve"](server, "127.0.0.1", 0, port.set_result))
        try:
            return await asyncio.gather(*[client(await port) for client in clients]), server
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return asyncio.run(asyncio.wait_for(all_of_it(), 120))


def test_clients_get_what_their_prompts_give_alone(names, model):
    rng = np.random.default_rng(0)
    asked = [(rng.integers(13, size=rng.integers(1, 9)).tolist(), int(rng.integers(1, 30))) for _ in range(9)]
    lines = [json.dumps({"prompt": prompt, "tokens": tokens}).encode() for prompt, tokens in asked]
    gone = [lambda port: ask(port, b'{"prompt": [1], "tokens": 4000}', most=3)] * 2
    clients = [lambda port, line=line: ask(port, line) for line in lines]
    found, server = serve(names, model, 3, gone + clients)
    params, config, phi = model
    for (prompt, tokens), answers in zip(asked, found[2:], strict=True):
        drawn = generate(params, config, np.array([prompt]), tokens, attention=phi, top_k=1, rng=0)
        assert [each["token"] for each in answers] == drawn[0, -tokens:].tolist()
    assert server.rows.count(None) >= 1  # sessions whose client has gone make room


def test_what_cannot_be_served_is_said(names, model):
    lines = [b"", b"no JSON", b"[]", b'{"prompt": [99], "tokens": 3}', b'{"prompt": [1], "tokens": true}']
    lines += [b"x" * 99999, b"[" * 60000]  # longer than a line may be, and deeper than Python follows
    found, _ = serve(names, model, 2, [lambda port, line=line: ask(port, line) for line in lines])
    assert all(len(answers) == 1 and answers[0]["error"] for answers in found)


@pytest.mark.parametrize("phi", [ka.features.elu1(), None])
def test_rows_that_nobody_has_neither_end_nor_grow(names, phi):
    """A model of few positions serves for ever, also where most rows are idle."""
    config = Config(dim=16, layers=1, heads=2, vocab=13, length=12)
    server = names["Server"](initial_params(config, rng=0), config, phi, 3)
    for prompt in ([1, 2], [3, 4, 5], [6], [2, 1]):
        session = server.ask(prompt, 12 - len(prompt))
        server.join()
        while session.tokens != 0:
            server.step()
        drawn = generate(server.params, config, np.array([prompt]), 12 - len(prompt), attention=phi, temperature=0)
        assert [session.drawn.get_nowait() for _ in range(12 - len(prompt))] == drawn[0].tolist()


def test_sessions_that_come_and_go_get_what_they_get_alone(monkeypatch):
    """And one that is given another's row does not."""
    names = runpy.run_path(str(ROOT / "examples" / "serving_soak.py"))
    found = names["soak"](40, 8, heads=2, dim=8, length=6.0)
    assert found["sessions that left"] > 30
    assert found["largest difference from their own runs"] < 1e-5

    put = ka.put_states
    monkeypatch.setattr(ka, "put_states", lambda state, row, new, **_: put(state, row if row < 7 else 0, new))
    with pytest.raises(AssertionError, match="differs from its own run"):
        names["soak"](40, 8, heads=2, dim=8, length=6.0)
