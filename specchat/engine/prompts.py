"""Turns requests into prompts, and prepares the collector of the reply."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.context_policy import fit
from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.options import NOTHING_WRITTEN, Arguments, Limits, Message, Written
from specchat.engine.reply_spans import Begun, ReplySpans, TextStream, read
from specchat.engine.reply_text import ReplyText
from specchat.engine.requests import Generate


@dataclass(frozen=True)
class PromptTokens:
    """Tokens of a chat after `dropped` messages were left out; the last `begun` are those of a reply to continue."""

    tokens: list[int]
    dropped: int
    begun: tuple[int, ...] = ()


class Prompts:
    """Builds prompts for a model with a context of `context` tokens and `vocab` embeddings."""

    def __init__(self, tokenizer: Tokenizer, context: int, vocab: int) -> None:
        self._given: dict[Arguments, Tokenizer] = {(): tokenizer}
        """The tokenizer by arguments of its chat template."""
        self._context = context
        self._vocab = vocab

    def _with(self, template: Arguments) -> Tokenizer:
        if template not in self._given:
            self._given[template] = self._given[()].given(template)
        return self._given[template]

    def prompt(
        self,
        messages: Sequence[Message],
        limits: Limits,
        prefill: str,
        begun: Written = NOTHING_WRITTEN,
        template: Arguments = (),
        raw: str = "",
    ) -> PromptTokens:
        """Tokens of a chat that fit the context, with the start of its reply; of a `raw` prompt all of them.

        Raises:
            ModelError: the chat template refuses these messages.
        """
        tokenizer = self._with(template)
        if raw:
            return PromptTokens(tokenizer.as_it_stands(raw), 0)
        tokens = begun.token_ids if self._decodes(begun, tokenizer) else ()
        rest = NOTHING_WRITTEN if tokens else begun

        def count(some: Sequence[Message]) -> int:
            return len(tokenizer.prompt(some, prefill, rest)) + len(tokens)

        kept = fit(messages, limits, self._context, count)
        return PromptTokens([*tokenizer.prompt(kept.messages, prefill, rest), *tokens], kept.dropped, tokens)

    def text(self, request: Generate, prompt: PromptTokens) -> ReplyText:
        """The collector of the reply to a prompt."""
        # A template's suffix of replies acts as a stop string, unless it is a token.
        own = self._with(request.template).format.stop
        text = ReplyText(self._begun(request, prompt), (*request.limits.stop, own))
        text.resume(request.begun, prompt.begun)
        return text

    def spans(self, request: Generate, prompt: PromptTokens) -> ReplySpans:
        """The parts of the reply to a prompt, after its beginning."""
        spans = self._begun(request, prompt)
        for token in prompt.begun:
            spans.push(token)
        return spans

    def _begun(self, request: Generate, prompt: PromptTokens) -> ReplySpans:
        """The parts of a reply before its tokens."""
        before = request.beginning
        part: Begun = "thinking" if before.thinking else "answer" if before.text or request.raw else ""
        return _spans("" if prompt.begun else part, self._with(request.template))

    def _decodes(self, begun: Written, tokenizer: Tokenizer) -> bool:
        """True if a reply's tokens decode to its text with this tokenizer; they may be another model's."""
        if not begun.token_ids or not 0 <= min(begun.token_ids) <= max(begun.token_ids) < self._vocab:
            return False
        decoded = Written.of(read(_spans("", tokenizer), begun.token_ids))
        return (decoded.text, decoded.reasoning) == (begun.text, begun.reasoning)


def _spans(begun: Begun, tokenizer: Tokenizer) -> ReplySpans:
    return ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format, begun)


def written(request: Generate, text: ReplyText) -> Written:
    """The whole reply: its given start, less the part of a stop string, and the text after it."""
    before = request.beginning.spans
    if text.taken_back:
        last, reasoning = before[-1]
        before = (*before[:-1], (last[: -text.taken_back], reasoning))
    return Written.of([*before, *text.written.spans], thinking=text.thinking)
