"""Lets many clients at a time at `specchat serve`: `python -m measure.storm [--clients 50] [--cancelled 600]`.

The demo pair, in a home of its own, by a server that may have 256 files open. While clients ask, others leave amid
their replies, some never read theirs, and half-open connections stay. Each text is compared with that of the same
request alone; meanwhile an app's reply on the same engine is timed, and a prompt of 8 MB is to be refused.
"""

import argparse
import asyncio
import json
import random
import socket
import time
from contextlib import suppress
from typing import Any

from measure.served import demo_server, direct

FILES = 256
PROMPTS, TOKENS = 10, 40
STALLED, HALF_OPEN = 20, 400
AT_ONCE = 40
"""Clients at a time of those that leave."""
HUGE = "fox " * (2 << 20)


def body(seed: int, stream: bool = False, text: str = "") -> dict[str, Any]:
    prompt = text or f"Tell me a story about {seed % PROMPTS}."
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "max_tokens": TOKENS, "seed": seed % PROMPTS, "temperature": 0.7, "stream": stream}


async def connected(port: int, sent: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a chat was asked for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    raw = json.dumps(sent).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n"
    )
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + raw)
    await writer.drain()
    return reader, writer


async def answer(port: int, sent: dict[str, Any]) -> str:
    """The text of a reply, or what went wrong; asks again where the queue is full, as clients do."""
    try:
        while True:
            reader, writer = await connected(port, sent)
            head, _, raw = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            status = head.splitlines()[0].decode()
            if " 429 " not in status:
                break
            await asyncio.sleep(1.0)
        if " 200 " not in status:
            return status
        text: str = json.loads(raw)["choices"][0]["message"]["content"]
    except OSError as error:
        return repr(error)
    return text


async def left(port: int, seed: int) -> None:
    """Ask, and go away at some time within two seconds."""
    drawn = random.Random(seed)
    with suppress(OSError):
        reader, writer = await connected(port, body(seed, stream=True))
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(drawn.choice((1, 200, 2000))), drawn.uniform(0.0, 2.0))
        writer.transport.abort()


async def storm(port: int, clients: int, cancelled: int) -> tuple[list[str], float]:
    """The texts that the clients got, in the order of their seeds, and the seconds."""
    stalled = [await connected(port, body(seed, stream=True)) for seed in range(STALLED)]
    half_open = [socket.socket() for _ in range(HALF_OPEN)]
    for number, one in enumerate(half_open):
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        if number % 2:
            await asyncio.sleep(0)
            with suppress(OSError):
                one.send(b"POST /v1/chat/completions HTTP/1.1\r\nHo")
    gate = asyncio.Semaphore(AT_ONCE)

    async def leave(seed: int) -> None:
        async with gate:
            await left(port, seed)

    begun = time.perf_counter()
    leaving = [asyncio.create_task(leave(seed)) for seed in range(cancelled)]
    texts = await asyncio.gather(*(answer(port, body(seed)) for seed in range(clients)))
    seconds = time.perf_counter() - begun
    await asyncio.gather(*leaving)
    for one in half_open:
        one.close()
    for _, writer in stalled:
        writer.transport.abort()
    return texts, seconds


def main() -> None:
    """Run the storm, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--cancelled", type=int, default=600)
    options = parser.parse_args()
    with demo_server(FILES) as (url, engine):
        port = int(url.rpartition(":")[2])
        alone = [asyncio.run(answer(port, body(seed))) for seed in range(PROMPTS)]
        quiet = direct(engine, 1, "What is a lamp?", 1)

        async def both() -> tuple[list[str], float, float]:
            running = asyncio.create_task(storm(port, options.clients, options.cancelled))
            await asyncio.sleep(1.0)
            own = await asyncio.to_thread(direct, engine, 2, "What is a lamp?", 1)
            assert own.text == quiet.text
            return *await running, own.first_ms

        texts, seconds, first_ms = asyncio.run(both())
        same = sum(text == alone[seed % PROMPTS] for seed, text in enumerate(texts))
        others = sorted({text for seed, text in enumerate(texts) if text != alone[seed % PROMPTS]})
        for other in others:
            print(f"another answer: {other}")
        print(f"{same} of {options.clients} texts are those of requests alone, in {seconds:.1f} s")
        print(f"an app's reply: first text after {first_ms:.0f} ms, {quiet.first_ms:.0f} alone")
        begun = time.perf_counter()
        refused = asyncio.run(answer(port, body(0, text=HUGE)))
        print(f"{len(HUGE) >> 20} MB: {refused} after {time.perf_counter() - begun:.2f} s")
        print("after it:", "the same text" if asyncio.run(answer(port, body(1))) == alone[1] else "another text")


if __name__ == "__main__":
    main()
