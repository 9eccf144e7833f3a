"""Plain replies of a pair of this machine, to compare a server's with."""

from collections.abc import Sequence

from specchat.engine.errors import EngineError
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.remote.written_replies import TokenOption, TokenOptions

TOP = 5
"""Likeliest tokens of a place."""


class LocalReplies:
    """A `ReplyWriter` by a loaded pair, without drafting."""

    drafts = False
    keeps_text = "specchat"

    def __init__(self, pair: PairSpec, session: Session) -> None:
        self.name = pair.id
        self.place = f"{pair.name} on this machine"
        self._session = session

    def write(self, chat: Sequence[Message], sampling: Sampling, tokens: int) -> str:
        return self._reply(chat, sampling, tokens).text

    def options(self, chat: Sequence[Message], tokens: int, at: int) -> TokenOptions | None:
        tokenizer, ids = self._session.tokenizer, self._reply(chat, Sampling(), tokens).token_ids

        def text(*tokens: int) -> bytes:
            return tokenizer.decode(list(tokens)).encode("utf-8", "replace")

        index = next((n for n in range(len(ids)) if len(text(*ids[: n + 1])) > at), len(ids))
        before = ids[:index]
        start = len(text(*before))
        self._session.forget()
        logits = self._session.target.next_logits([*tokenizer.prompt(tuple(chat)), *before])
        likeliest = logits.float().log_softmax(-1).topk(TOP)
        found = zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        return TokenOptions(index, start, tuple(TokenOption(text(*before, t)[start:], p) for t, p in found))

    def _reply(self, chat: Sequence[Message], sampling: Sampling, tokens: int) -> Finished:
        limits = Limits(tokens, context="refuse")
        *_, last = self._session.generate(Generate(0, tuple(chat), sampling, limits, Speculation(), cold=True))
        if not isinstance(last, Finished):
            raise EngineError("internal", f"{self.name} did not finish its reply.")
        return last
