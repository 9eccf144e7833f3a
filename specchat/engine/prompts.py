"""Requests to prompts, and what collects the reply that follows."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.api import Generate
from specchat.engine.context_policy import fit
from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.options import NOTHING_WRITTEN, Limits, Message, Written
from specchat.engine.reply_spans import Begun, ReplySpans, read
from specchat.engine.reply_text import ReplyText


@dataclass(frozen=True)
class PromptTokens:
    """The tokens of a chat, after `dropped` messages were left out; the last `begun` are those of a reply."""

    tokens: list[int]
    dropped: int
    begun: tuple[int, ...] = ()


class Prompts:
    """Makes prompts for a model whose context holds `context` tokens and whose table has `vocab` rows."""

    def __init__(self, tokenizer: Tokenizer, context: int, vocab: int) -> None:
        self._tokenizer = tokenizer
        self._context = context
        self._vocab = vocab

    def prompt(
        self, messages: Sequence[Message], limits: Limits, prefill: str, begun: Written = NOTHING_WRITTEN
    ) -> PromptTokens:
        """What fits the context of a chat, and of what its reply begins with.

        Raises:
            ModelError: the chat template refuses these messages.
        """
        tokens = begun.token_ids if self._says(begun) else ()
        rest = NOTHING_WRITTEN if tokens else begun

        def count(some: Sequence[Message]) -> int:
            return len(self._tokenizer.prompt(some, prefill, rest)) + len(tokens)

        kept = fit(messages, limits, self._context, count)
        return PromptTokens([*self._tokenizer.prompt(kept.messages, prefill, rest), *tokens], kept.dropped, tokens)

    def text(self, request: Generate, prompt: PromptTokens) -> ReplyText:
        """What collects the reply to a prompt."""
        before = request.beginning
        part: Begun = "thinking" if before.thinking else "answer" if before.text else ""
        # What a template writes behind replies ends them where that is no token.
        own = self._tokenizer.format.stop
        text = ReplyText(self._spans("" if prompt.begun else part), (*request.limits.stop, own))
        text.go_on(request.begun, prompt.begun)
        return text

    def _says(self, begun: Written) -> bool:
        """Whether the tokens of a reply say what its text does, here: they may be another model's."""
        if not begun.token_ids or not 0 <= min(begun.token_ids) <= max(begun.token_ids) < self._vocab:
            return False
        said = Written.of(read(self._spans(""), begun.token_ids))
        return (said.text, said.reasoning) == (begun.text, begun.reasoning)

    def _spans(self, begun: Begun) -> ReplySpans:
        tokenizer = self._tokenizer
        return ReplySpans(tokenizer.stream(), tokenizer.reply_marks, tokenizer.format, begun)


def written(request: Generate, text: ReplyText) -> Written:
    """The whole reply: what it began with, but for what became a stop string, and what came after."""
    before = request.beginning.spans
    if text.taken_back:
        last, reasoning = before[-1]
        before = (*before[:-1], (last[: -text.taken_back], reasoning))
    return Written.of([*before, *text.written.spans], thinking=text.thinking)
