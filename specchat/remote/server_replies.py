"""A server's replies for comparisons, and the log-probabilities of their tokens."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from specchat.clean import one_line
from specchat.engine.protocol.options import Limits, Message, Sampling
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError, error_in
from specchat.remote.json_values import table
from specchat.remote.kinds import Found
from specchat.remote.link import FoundServer
from specchat.remote.written_replies import TokenOption, TokenOptions

TOP = 5
"""Log-probabilities asked of each token; OpenAI's API has 20 at most, and some servers 5."""


class ServerReplies:
    """A `ReplyWriter` by a server, connected while it is used as a context manager."""

    def __init__(self, pair: PairSpec, *, undrafted: bool = False) -> None:
        """`undrafted` has the server write without drafting, if it can."""
        assert pair.target.server is not None
        self.name = f"{pair.id} without drafting" if undrafted else pair.id
        self._pair, self._server, self._undrafted = pair, pair.target.server, undrafted
        self._runner = asyncio.Runner()

    def __enter__(self) -> "ServerReplies":
        """Raises ServerError: the server cannot be reached, or does not have the model."""
        self._runner.__enter__()
        try:
            self._link = self._runner.run(FoundServer.open(self._server, self._pair.template))
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._link.close())
        self._runner.close()

    @property
    def _connection(self) -> ServerConnection:
        return self._link.connection

    @property
    def _found(self) -> Found:
        return self._link.found

    @property
    def place(self) -> str:
        return one_line(f"{self._found.dialect.title} at {self._connection.root}, {self._found.model}", 160)

    @property
    def drafts(self) -> bool | None:
        return False if self._undrafted else self._found.known.drafts

    @property
    def undrafts(self) -> bool:
        """True if the server writes a reply without drafting on request."""
        return bool(self._found.dialect.undrafted)

    @property
    def keeps_text(self) -> str:
        return self._found.dialect.title if self._found.dialect.keeps_text else ""

    def write(self, chat: Sequence[Message], sampling: Sampling, tokens: int) -> str:
        async def read() -> str:
            reader, parts = self._found.dialect.reader(self._found.known), []
            async with contextlib.aclosing(self._events(chat, sampling, tokens, {})) as events:
                async for event in events:
                    chunk = reader.read(event)
                    parts += [chunk.reasoning, chunk.text]
            return "".join(parts)

        return self._runner.run(read())

    def options(self, chat: Sequence[Message], tokens: int, at: int) -> TokenOptions | None:
        async def read() -> list[tuple[TokenOption, ...]]:
            asked = {"logprobs": True, "top_logprobs": TOP}
            async with contextlib.aclosing(self._events(chat, Sampling(), tokens, asked)) as events:
                return [options async for event in events for options in _told(event)]

        try:
            told = self._runner.run(read())
        except ServerError:
            return None
        return _at(told, at)

    async def _events(
        self, chat: Sequence[Message], sampling: Sampling, tokens: int, more: Mapping[str, Any]
    ) -> AsyncGenerator[Mapping[str, Any]]:
        dialect, model = self._found.dialect, self._found.model
        request = Generate(0, tuple(chat), sampling, Limits(tokens, context="refuse"), cold=True)
        body = {**dialect.body(request, model), **(dialect.undrafted if self._undrafted else {}), **more}
        events = self._connection.stream(dialect.path(model), body)
        async with contextlib.aclosing(events):
            async for event in events:
                if words := error_in(event):
                    raise ServerError(f"{self._connection.root} ended the reply with an error: {words}.")
                yield event


def _told(event: Mapping[str, Any]) -> Iterator[tuple[TokenOption, ...]]:
    """The options of the tokens of an event, each with the written one first."""
    choices = event.get("choices")
    content = table(table(choices[0]).get("logprobs")).get("content") if isinstance(choices, list) and choices else None
    for entry in content if isinstance(content, list) else ():
        written, others = _option(entry), table(entry).get("top_logprobs")
        if written is not None:
            found = [_option(other) for other in others] if isinstance(others, list) else []
            yield (written, *(option for option in found if option is not None and option.text != written.text))


def _option(entry: Any) -> TokenOption | None:
    told = table(entry)
    text, logprob, data = told.get("token"), told.get("logprob"), told.get("bytes")
    if not isinstance(text, str) or not isinstance(logprob, int | float) or not -1e9 < logprob < 1e9:
        return None
    with contextlib.suppress(TypeError, ValueError):  # bytes are told or null
        return TokenOption(bytes(data), float(logprob)) if isinstance(data, list) else _of_text(text, logprob)
    return _of_text(text, logprob)


def _of_text(text: str, logprob: float) -> TokenOption:
    return TokenOption(text.encode("utf-8", "replace"), float(logprob))


def _at(told: Sequence[tuple[TokenOption, ...]], at: int) -> TokenOptions | None:
    """The token over byte `at` of the text."""
    start = 0
    for index, options in enumerate(told):
        length = len(options[0].text)
        if start <= at < start + length:
            return TokenOptions(index, start, options)
        start += length
    return None
