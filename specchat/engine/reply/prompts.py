"""Turns requests into prompts, and prepares the collector of the reply."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count as count_up
from itertools import takewhile

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.grammar.source import HeldTo, rule_body
from specchat.engine.model.tree_layout import shared_prefix
from specchat.engine.pictures.blind import Blind
from specchat.engine.protocol.options import (
    NOTHING_WRITTEN,
    Arguments,
    Grammar,
    Limits,
    Message,
    Picture,
    Tool,
    Written,
)
from specchat.engine.protocol.pair_info import NO_TOOLS
from specchat.engine.protocol.picture_ids import of_text
from specchat.engine.protocol.raw_prompt import FillIn, RawPrompt
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.reply.context_policy import fit, reserve
from specchat.engine.reply.pieces import ReplyText
from specchat.engine.text import fill_in
from specchat.engine.text.spans import Begun, ReplySpans, read
from specchat.engine.text.text_stream import TextStream
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.tool_calls.forced import CONSTRAIN, forced_calls
from specchat.engine.tool_calls.giving import short_id
from specchat.engine.tool_calls.reader import CallReader


@dataclass(frozen=True)
class PromptTokens:
    """Tokens of a chat after `dropped` messages were left out; the last `begun` are those of a reply to continue.

    `pictures` are those of the other messages. The first `beginning` are system messages and tools, with which other
    chats may begin; 0 where that is not looked at.
    """

    tokens: list[int]
    dropped: int
    begun: tuple[int, ...] = ()
    pictures: tuple[Picture, ...] = ()
    beginning: int = 0


class Prompts:
    """Builds prompts for a model with a context of `context` tokens and `vocab` embeddings."""

    def __init__(self, tokenizer: Tokenizer, context: int, vocab: int, album: Blind, beginnings: bool = False) -> None:
        """With `beginnings` the tokens with which other chats may begin are counted."""
        self._given: dict[Arguments, Tokenizer] = {(): tokenizer}
        """The tokenizer by arguments of its chat template."""
        self._context = context
        self._vocab = vocab
        self._album = album
        self._beginnings = beginnings

    def _with(self, template: Arguments) -> Tokenizer:
        if template not in self._given:
            self._given[template] = self._given[()].given(template)
        return self._given[template]

    def prompt(self, request: Generate | Count) -> PromptTokens:
        """Tokens of a chat that fit the context, with the start of its reply; of a raw prompt all of them.

        Raises:
            ModelError: the chat template refuses these messages.
            EngineError: "request": it takes no tools, or the model no pictures.
        """
        self._album.check(request.messages)
        tokenizer = self._with(request.template)
        if request.raw:
            return PromptTokens(self._raw(request.raw, request.limits, tokenizer), 0)
        tools = self._tools(request, tokenizer)
        begun = request.begun if isinstance(request, Generate) else NOTHING_WRITTEN
        tokens = begun.token_ids if self._decodes(begun, tokenizer, tools) else ()
        rest = NOTHING_WRITTEN if tokens else begun

        def prompt(some: Sequence[Message]) -> list[int]:
            written = tokenizer.prompt(some, request.prefill, rest, tools)
            return [*self._album.placed(written, _pictures(some)), *tokens]

        kept = fit(request.messages, request.limits, self._context, lambda some: len(prompt(some)))
        built, shared = prompt(kept.messages), 0
        begins = self._beginnings and isinstance(request, Generate)
        if begins and (system := [*takewhile(lambda one: one.role == "system", kept.messages)]):
            with suppress(ModelError):
                shared = shared_prefix(built, tokenizer.prompt([*system, Message("user", "")], tools=tools))
        return PromptTokens(built, kept.dropped, tokens, _pictures(kept.messages), shared)

    def _raw(self, raw: RawPrompt, limits: Limits, tokenizer: Tokenizer) -> list[int]:
        if isinstance(raw, FillIn):
            return fill_in.prompt(tokenizer, raw, self._context - reserve(limits, self._context))
        return tokenizer.as_it_stands(raw) if isinstance(raw, str) else list(raw)

    def ends(self, request: Generate) -> frozenset[int]:
        """Tokens that end the reply to a raw prompt, beside those that end every reply."""
        return fill_in.ends(self._with(())) if isinstance(request.raw, FillIn) else frozenset()

    def text(self, request: Generate, prompt: PromptTokens) -> ReplyText:
        """The collector of the reply to a prompt."""
        # A template's suffix of replies acts as a stop string, unless it is a token.
        own = "" if request.limits.ignore_eos else self._with(request.template).format.stop
        text = ReplyText(self._begun(request, prompt, calls=True), (*request.limits.stop, own))
        text.resume(request.begun, prompt.begun)
        return text

    def spans(self, request: Generate, prompt: PromptTokens) -> ReplySpans:
        """The parts of the reply to a prompt, after its beginning; calls are text of the answer."""
        spans = self._begun(request, prompt)
        for token in prompt.begun:
            spans.push(token)
        return spans

    def _begun(self, request: Generate, prompt: PromptTokens, *, calls: bool = False) -> ReplySpans:
        """The parts of a reply before its tokens."""
        before, tokenizer = request.beginning, self._with(request.template)
        part: Begun = "thinking" if before.thinking else "answer" if before.text or request.raw else ""
        reader = None
        if calls and not request.raw:
            ids = _ids(prompt)
            reader = _reader(tokenizer, self._tools(request, tokenizer), ids)
        return _spans("" if prompt.begun else part, tokenizer, reader)

    def _tools(self, request: Generate | Count, tokenizer: Tokenizer) -> tuple[Tool, ...]:
        """The tools that the reply may call.

        Raises:
            EngineError: "request": the template takes none, or a choice cannot be held to.
        """
        if not request.tools or request.tool_choice == "none":
            return ()
        if tokenizer.format.tools is None:
            raise EngineError("request", NO_TOOLS)
        return request.tools

    def held(self, request: Generate) -> HeldTo | None:
        """The grammar that holds the reply: the request's, that of the calls which it makes, or one of the two.

        Raises:
            EngineError: "request": there is no such tool, or this model's calls cannot be held to.
        """
        choice, answer = request.tool_choice, request.grammar
        if not request.tools or choice == "none" or request.raw:
            return HeldTo(answer) if answer is not None else None
        tokenizer = self._with(request.template)
        if choice == "auto" and answer is None:
            return _held_calls(request.tools, tokenizer)
        chosen = tuple(tool for tool in request.tools if choice in ("auto", "required", tool.name))
        if not chosen:
            raise EngineError("request", f"There is no tool {choice!r} to choose.")
        form = tokenizer.format.tools
        either = rule_body(answer) if answer is not None and choice == "auto" else ""
        text = forced_calls(chosen, form.call, _marks(tokenizer), either) if form is not None else ""
        if not text:
            what = f"tool_choice {choice!r} cannot be" if not either else "An answer beside tools cannot be"
            other = "auto or none" if not either else "tool_choice none"
            raise EngineError("request", f"{what} held to: this model's form of calls has no grammar. Choose {other}.")
        return HeldTo(Grammar("lark", text), calls=True, whole=form is not None and form.call.kind == "channel")

    def _decodes(self, begun: Written, tokenizer: Tokenizer, tools: Sequence[Tool]) -> bool:
        """True if a reply's tokens decode to its text with this tokenizer; they may be another model's."""
        if not begun.token_ids or not 0 <= min(begun.token_ids) <= max(begun.token_ids) < self._vocab:
            return False
        spans = _spans("", tokenizer, _reader(tokenizer, tools, map(str, count_up())))
        decoded = Written.of(read(spans, begun.token_ids))
        return (decoded.text, decoded.reasoning) == (begun.text, begun.reasoning)


def _held_calls(tools: Sequence[Tool], tokenizer: Tokenizer) -> HeldTo | None:
    """The grammar of calls that a reply may make, where one of `tools` is strict and a token opens them; else None."""
    form, marks = tokenizer.format.tools, _marks(tokenizer)
    if form is None or form.call.opening not in marks or not any(tool.strict for tool in tools):
        return None
    text, opening = forced_calls(tools, form.call, marks), form.call.opening
    special = opening in tokenizer.reply_marks.special
    return HeldTo(Grammar("lark", text), calls=True, opener=marks[opening], special=special) if text else None


def _marks(tokenizer: Tokenizer) -> dict[str, int]:
    """Tokens of marks that a call is made of or stands behind, by their text."""
    marks = dict(tokenizer.reply_marks.calls)
    if tokenizer.reply_marks.channels is not None:
        marks |= tokenizer.reply_marks.tokens
        marks |= {number: token.content for number, token in tokenizer.added.items() if token.content == CONSTRAIN}
    return {text: token for token, text in marks.items()}


def _spans(begun: Begun, tokenizer: Tokenizer, calls: CallReader | None = None) -> ReplySpans:
    return ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format, begun, calls)


def _reader(tokenizer: Tokenizer, tools: Sequence[Tool], ids: Iterator[str]) -> CallReader | None:
    """The reader of a reply's calls; None where it has no tools."""
    form = tokenizer.format.tools
    if not tools or form is None:
        return None
    return CallReader(form.call, tools, ids, frozenset(tokenizer.reply_marks.calls.values()))


def _pictures(messages: Sequence[Message]) -> tuple[Picture, ...]:
    return tuple(picture for message in messages for picture in message.pictures)


def _ids(prompt: PromptTokens) -> Iterator[str]:
    """Names of calls: the same for the same prompt, and others for every other."""
    tokens = of_text(prompt.tokens[: len(prompt.tokens) - len(prompt.begun)])
    seed = repr(tokens) + "".join(picture.digest for picture in prompt.pictures)
    return (short_id(f"{number} {seed}") for number in count_up())


def written(request: Generate, text: ReplyText) -> Written:
    """The whole reply: its given start, less the part of a stop string, and the text after it."""
    before = request.beginning.spans
    if text.taken_back:
        last, reasoning = before[-1]
        before = (*before[:-1], (last[: -text.taken_back], reasoning))
    made = Written.of([*before, *text.written.spans], thinking=text.thinking)
    return replace(made, tool_calls=text.written.tool_calls or request.begun.tool_calls)
