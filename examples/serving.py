"""
Sessions that join and leave a batch
====================================

A server decodes many sessions at once: they join and leave a batch whose memory never grows.

``python serving.py serve`` listens on a socket. A session sends a line of JSON, {"prompt": [3, 1, 4], "tokens": 20},
and receives a line for each token, {"token": 7}, as soon as it is drawn. ``python serving.py measure`` prints what a
step takes with 1, 32 and 256 sessions. ``--params FILE`` are parameters that `ka.transformer.save_params` wrote.
Without it weights are drawn: time and memory are those of a trained model of the same sizes.

A session has a row of the decoder's memory. When it ends, `Decoder.put` lets the next one take the row, and nothing is
copied of the others. A sequence has the same bits whatever other sequences stand beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

import kernattn as ka
from kernattn.transformer import Config, Decoder, initial_params, load_params, prefill

MOST_TOKENS = 4096  # that a session may ask for
MOST_LINE = 1 << 16  # bytes of a request
MOST_BLANK = 64  # tokens of a row that nobody has


@dataclass(eq=False)
class Session:
    """What a client asked for, and what was drawn so far."""

    prompt: list[int]
    tokens: int
    drawn: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    left: bool = False  # the client has gone


class Server:
    """Sessions in the rows of a decoder: one step takes a token of each."""

    def __init__(self, params: dict[str, Any], config: Config, phi: ka.features.FeatureMap, rows: int) -> None:
        self.params, self.config, self.phi = params, config, phi
        self.decoder = Decoder(params, config, attention=phi)
        self.decoder.prefill(np.zeros((rows, 1), int))  # rows that nobody has are decoded too: shapes stay
        self.blank = self.decoder.take(0)  # of a token
        self.blank_until = min(MOST_BLANK, config.length or MOST_BLANK)
        self.rows: list[Session | None] = [None] * rows
        self.next = np.zeros(rows, int)
        self.waiting: deque[Session] = deque()
        self.came = asyncio.Event()

    def ask(self, prompt: Any, tokens: Any) -> Session:
        """Return a session that waits for a row; raise ValueError where it can't be served."""
        vocab, longest = self.config.vocab, self.config.length
        if not (isinstance(prompt, list) and prompt and all(type(x) is int and 0 <= x < vocab for x in prompt)):
            raise ValueError(f"prompt must be a list of tokens, integers from 0 to {vocab - 1}")
        if type(tokens) is not int or not 1 <= tokens <= MOST_TOKENS:
            raise ValueError(f"tokens must be an integer from 1 to {MOST_TOKENS}")
        if longest is not None and len(prompt) + tokens > longest:
            raise ValueError(f"a prompt and its tokens must be at most {longest} together")
        session = Session(prompt, tokens)
        self.waiting.append(session)
        self.came.set()
        return session

    def join(self) -> None:
        """Let sessions that wait take the rows that are free."""
        for row, session in enumerate(self.rows):
            while session is None and self.waiting:
                session = self.waiting.popleft()
                if session.left:
                    session = None
                    continue
                out, state = prefill(self.params, self.config, np.array([session.prompt]), attention=self.phi)
                self.decoder.put([row], state)
                self.rows[row] = session
                self.deliver(row, int(out[0, -1].argmax()))
                session = self.rows[row]

    def deliver(self, row: int, token: int) -> None:
        """Give a session a token; its row is free after the last one."""
        session = self.rows[row]
        assert session is not None
        session.drawn.put_nowait(token)
        session.tokens -= 1
        self.next[row] = token
        if session.tokens == 0 or session.left:
            self.rows[row] = None
            self.decoder.put(row, self.blank)

    def step(self) -> None:
        """Take a token of every session."""
        for row in np.flatnonzero(self.decoder.positions >= self.blank_until):
            if self.rows[row] is None:  # nobody's tokens end here too, and exact attention would keep them all
                self.decoder.put(row, self.blank)
        drawn = self.decoder.step(self.next).argmax(axis=-1)
        for row, session in enumerate(self.rows):
            if session is not None:
                self.deliver(row, int(drawn[row]))

    async def run(self) -> None:
        """Serve as long as there are sessions, and wait where there are none."""
        while True:
            self.join()
            if all(session is None for session in self.rows):
                self.came.clear()
                if not self.waiting:
                    await self.came.wait()
                continue
            self.step()
            await asyncio.sleep(0)  # clients read and write

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client: a line that asks, a line for each token."""
        session = None
        try:
            asked = json.loads(await reader.readline())
            if not isinstance(asked, dict):
                raise ValueError("a request must be an object with prompt and tokens")
            session = self.ask(asked.get("prompt"), asked.get("tokens"))
            for _ in range(session.tokens):
                writer.write(json.dumps({"token": await session.drawn.get()}).encode() + b"\n")
                await writer.drain()
        except (ValueError, RecursionError) as error:  # JSON that is none or too deep, lines that are too long
            writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            if session is not None:
                session.left = True
            writer.close()


async def serve(server: Server, host: str, port: int, ready: Any = None) -> None:
    """Listen until cancelled; `ready` is called with the port."""
    listening = await asyncio.start_server(server.answer, host, port, limit=MOST_LINE)
    if ready is not None:
        ready(listening.sockets[0].getsockname()[1])
    async with listening:
        await server.run()


def model(sizes: argparse.Namespace) -> tuple[dict[str, Any], Config, ka.features.FeatureMap]:
    """Return parameters, their config and the map of attention."""
    if sizes.params is not None:
        params, config = load_params(sizes.params)
    else:
        config = Config(dim=sizes.dim, layers=sizes.layers, heads=sizes.heads, vocab=256, positions="rotary")
        params = initial_params(config, rng=0)
    return params, config, ka.features.elu1()


def measure(sizes: argparse.Namespace) -> None:
    """Print what a step takes, prompts not counted, and what sessions take in memory."""
    print("| sessions | MB of states | a step, median ms | 99th percentile | tokens a second of steps |")
    print("|---:|---:|---:|---:|---:|")
    for rows in (1, 32, 256):
        server, rng = Server(*model(sizes), rows), np.random.default_rng(0)
        times = []
        for _ in range(sizes.steps):
            while len(server.waiting) < rows:
                server.ask(rng.integers(256, size=rng.integers(1, 9)).tolist(), int(rng.integers(20, 80)))
            server.join()
            begin = perf_counter()
            server.step()
            times.append(perf_counter() - begin)
        half, late = np.percentile(times[sizes.steps // 10 :], [50, 99])
        size = server.decoder.nbytes / 1e6
        print(f"| {rows} | {size:.1f} | {1e3 * half:.2f} | {1e3 * late:.2f} | {rows / half:.0f} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("serve", "measure"))
    parser.add_argument("--params", help="a file of save_params; weights are drawn without it")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rows", type=int, default=32, help="sessions that are decoded at once")
    parser.add_argument("--steps", type=int, default=500, help="of measure")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8765)
    sizes = parser.parse_args()
    if sizes.what == "measure":
        measure(sizes)
        return
    server = Server(*model(sizes), sizes.rows)
    listening = partial(print, f"listening on {sizes.host}, port", flush=True)
    asyncio.run(serve(server, sizes.host, sizes.port, listening))


if __name__ == "__main__":
    main()
