"""Text to tokens and back: the checkpoint's own tokenizer.json and chat template."""

import sys
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from specchat.clean import one_line
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.protocol.options import NOTHING_WRITTEN, Arguments, Message, Tool, ToolCall, Written
from specchat.engine.text.chat_format import ChatFormat
from specchat.engine.text.chat_template import ChatTemplate
from specchat.engine.text.marks import TOOL_MARKS, ReplyMarks
from specchat.engine.text.template import TemplateSource
from specchat.engine.text.tokenizer_backend import Backend
from specchat.engine.text.tokenizer_files import read_files, working

NO_TEMPLATE = ChatFormat()


class Tokenizer:
    """A model's tokenizer. Marks, such as special tokens, come only from the template, never from a message.

    Added tokens that spell words, spaces or HTML are not marks.
    """

    def __init__(
        self,
        backend: Backend,
        file: Path,
        special: Mapping[str, str],
        template: TemplateSource,
        rows: int = sys.maxsize,
    ) -> None:
        """`special`: texts of special tokens by name; `file`: named in messages; `rows`: of the model's embeddings.

        Raises:
            ModelError: the template does not parse.
        """
        self.backend = backend
        self.file = file
        self.rows = rows
        self.special = dict(special)
        self.source = template
        self.template = None
        if (source := template.text) is not None:
            texts = [token.content for token in self.added.values() if token.special or _marks(token, source)]
            self.template = ChatTemplate(source, str(template.file), self.special, texts)
        self._before = self._encoded("a")
        self._before_text = self.decode(self._before)
        self._texts: dict[tuple[tuple[int, ...], bool], str] = {}
        """Cached texts of single tokens, with and without the names of special ones."""

    @classmethod
    def read(cls, folder: Path, rows: int = sys.maxsize) -> "Tokenizer":
        """Load the tokenizer and the chat template of a checkpoint with `rows` embeddings.

        Raises:
            ModelError: missing or damaged files, or a template that does not parse.
        """
        files = read_files(folder)
        return cls(files.backend, files.file, files.special, files.template, rows)

    def use(self, arguments: Mapping[str, Any]) -> None:
        """Give `arguments` to the chat template from now on.

        Raises:
            ModelError: there is no template, or it does not take one of them.
        """
        if arguments and self.template is None:
            raise ModelError(f"{self.file}: {self.source.unsupported}, so it takes no arguments.")
        if self.template is not None:
            self.template.use(arguments)

    def given(self, arguments: Arguments) -> "Tokenizer":
        """The tokenizer with further `arguments` of its chat template, less those that it does not take."""
        if not arguments or self.template is None:
            return self
        made = copy(self)
        for name in ("eos", "markers", "reply_marks", "hidden"):
            made.__dict__.pop(name, None)
        made.template = self.template.given(arguments)
        return made

    @property
    def format(self) -> ChatFormat:
        """The template's format.

        Raises:
            ModelError: the template leaves the user's message out.
        """
        return NO_TEMPLATE if self.template is None else self.template.format

    @cached_property
    def eos(self) -> frozenset[int]:
        """token_ids that end a reply: the tokenizer's own, and those that the template writes after replies and calls.

        Raises:
            ModelError: the template leaves the user's message out.
        """
        called = self.format.tools.call.end if self.format.tools else ""
        texts = (self.special.get("eos_token", ""), self.format.turn_end, called)
        found = [self.backend.token_to_id(text) for text in texts if text]
        return frozenset(token for token in found if token is not None and token < self.rows)

    @cached_property
    def markers(self) -> list[str]:
        """Added tokens that mark parts of a chat, the longest first."""
        source = self.source.text or ""
        known = TOOL_MARKS | {mark for marks in self.format.marks for mark in (marks.opening, marks.closing)}
        every = self.backend.get_added_tokens_decoder().values()
        texts = [t.content for t in every if t.special or t.content in known or _marks(t, source)]
        return sorted(texts, key=len, reverse=True)

    @cached_property
    def reply_marks(self) -> ReplyMarks:
        """Marks in replies, and their tokens."""
        channels = self.format.channels
        texts = {mark for marks in self.format.marks for mark in (marks.opening, marks.closing)}
        texts |= {channels.start, channels.channel, channels.content, channels.end} if channels else set()
        tokens = {number: t.content for number, t in self.added.items() if t.content in texts}
        of_calls = self.format.tools.call.marks if self.format.tools else frozenset()
        calls = {number: t.content for number, t in self.added.items() if t.content in of_calls}
        special = frozenset(self.added[number].content for number in tokens | calls if self.added[number].special)
        return ReplyMarks(self.format.marks, channels, tokens, special, calls)

    @cached_property
    def hidden(self) -> frozenset[int]:
        """token_ids that the text of a reply does not show."""
        return frozenset(number for number, t in self.added.items() if t.special) | self.reply_marks.tokens.keys()

    @property
    def vocabulary(self) -> dict[str, int]:
        """Ids by token, added ones included, as far as the model has embeddings for them."""
        known = self.backend.get_vocab(with_added_tokens=True)
        return {text: token for text, token in known.items() if token < self.rows}

    @cached_property
    def words(self) -> dict[int, str]:
        """The vocabulary by id."""
        return {token: word for word, token in self.vocabulary.items()}

    @property
    def added(self) -> dict[int, AddedToken]:
        """Added tokens by id, as far as the model has embeddings for them."""
        known = self.backend.get_added_tokens_decoder()
        return {token: one for token, one in known.items() if token < self.rows}

    @property
    def size(self) -> int:
        """Size of a table of all token_ids, added ones included."""
        return 1 + max(self.vocabulary.values(), default=-1)

    def prompt(
        self,
        messages: Sequence[Message],
        prefill: str = "",
        begun: Written = NOTHING_WRITTEN,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        """Encode a chat up to the assistant's reply, which may call `tools`, with the reply's beginning.

        An answer begins with `prefill`; a reply may be `begun`. Without a chat template the texts are joined by
        newlines for the model to continue. Chat and beginning are encoded as one text, so the model sees the same
        tokens as if it had written the beginning.

        Raises:
            ModelError: the template rejects these messages; the message has its own words.
        """
        if self.template is None:
            text = "\n".join(self._inert(m.content) for m in messages) + self._inert(prefill or begun.text)
            return self._encoded(text, add_special_tokens=True)
        inert = [self._inert_message(self._apart(message)) for message in messages]
        inert_of = self._inert
        given = [Tool(inert_of(t.name), inert_of(t.description), inert_of(t.parameters)) for t in tools]
        return self._encoded(self.template.render(inert, given) + self._begun(prefill, begun))

    def as_it_stands(self, text: str) -> list[int]:
        """Encode a text without a chat template; names of special tokens in it are these tokens."""
        return self._encoded(text, add_special_tokens=True)

    def _inert_message(self, message: Message) -> Message:
        """A message without marks in any of its texts."""
        calls = tuple(ToolCall(call.id, *map(self._inert, (call.name, call.arguments))) for call in message.tool_calls)
        content, reasoning, name = map(self._inert, (message.content, message.reasoning, message.tool_name))
        return Message(message.role, content, reasoning, calls, message.tool_call_id, name, message.pictures)

    def _begun(self, prefill: str, begun: Written) -> str:
        """The beginning of a reply, with the model's marks around its parts."""
        around = self.format.around
        if not begun.text:
            return around.before_answer + self._inert(prefill) if prefill else ""
        parts, at = [], 0
        for number, (start, end) in enumerate(begun.reasoning):
            opening = "" if number == 0 and self.format.opened else around.opening
            closed = not begun.thinking or number + 1 < len(begun.reasoning)
            parts += [self._inert(begun.text[at:start]), opening, self._inert(begun.text[start:end])]
            parts += [around.closing] if closed else []
            at = end
        answer = self._inert(begun.text[at:])
        parts += [answer] if begun.reasoning else [around.before_answer, answer]
        return "".join(parts).rstrip(" ")  # a token is a space and its word

    def _apart(self, message: Message) -> Message:
        """Split reasoning from the text of an assistant's message, as older and imported chats hold it."""
        if message.role != "assistant" or message.reasoning:
            return message
        text = message.content.lstrip()
        for marks in self.format.marks:
            before, closing, after = text.partition(marks.closing)
            if closing and (before.startswith(marks.opening) or marks == self.format.opened):
                thoughts = before.removeprefix(marks.opening).strip("\n")
                return replace(message, content=after.strip("\n"), reasoning=thoughts)
        return message

    def encode(self, text: str) -> list[int]:
        """token_ids of an assistant's text, without marks."""
        return [token for token in self._encoded(self._inert(text)) if token < self.rows]

    @cached_property
    def longest(self) -> int:
        """Characters of the longest token; 0 where tokens leave out a part of the text, so that nothing bounds them."""
        spaced = f"a{40 * ' '}b"
        return max(map(len, self.vocabulary)) if self.decode(self._encoded(spaced)).endswith(spaced) else 0

    def check(self, prompt: Sequence[int]) -> None:
        """Check that the model has an embedding for each token of a prompt.

        Raises:
            EngineError: "model": it lacks one; the message names the token.
        """
        lacking = next((token for token in prompt if token >= self.rows), None)
        if lacking is not None:
            raise EngineError(
                "model",
                f"This prompt holds {one_line(self.text_of(lacking), 40)!r}, token {lacking}, for which the model has "
                f"no row: {self.file} names more tokens than the {self.rows} of the model. Leave it out, or take a "
                "checkpoint whose tokenizer fits.",
            )

    def _encoded(self, text: str, add_special_tokens: bool = False) -> list[int]:
        text = text.encode("utf-8", "replace").decode("utf-8")  # the library rejects half a surrogate pair
        with working(self.file, "cannot split a text into tokens"):
            return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        with working(self.file, "cannot put tokens together to a text"):
            return str(self.backend.decode(list(tokens)))

    def named(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, special ones by name."""
        with working(self.file, "cannot put tokens together to a text"):
            return str(self.backend.decode(list(tokens), skip_special_tokens=False))

    def text_of(self, token: int) -> str:
        """The text of `token` inside a text: incomplete characters show as U+FFFD, special tokens by name."""
        return self.text_after([token], skip_special_tokens=False)

    def text_after(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `tokens` inside a text: some decoders strip the start of a text."""
        key = (tuple(tokens), skip_special_tokens)
        if key in self._texts:
            return self._texts[key]
        with working(self.file, "cannot put tokens together to a text"):
            text = str(self.backend.decode([*self._before, *tokens], skip_special_tokens=skip_special_tokens))
        text = text.removeprefix(self._before_text)
        if len(tokens) == 1:
            self._texts[key] = text
        return text

    def _inert(self, text: str) -> str:
        """`text` of a message without marks.

        A zero-width space splits marks; those of one character become U+FFFD.
        """
        if self.backend.normalizer is not None:
            # The normalised text may have marks, for instance of full-width letters.
            with working(self.file, "cannot split a text into tokens"):
                normal = str(self.backend.normalizer.normalize_str(text))
            if any(marker in normal and marker not in text for marker in self.markers):
                text = normal
        for marker in self.markers:
            if marker in text:
                text = text.replace(marker, f"{marker[0]}\u200b{marker[1:]}" if len(marker) > 1 else "\ufffd")
        return text


def same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    """True where both have the same ids; padding, and tokens without an embedding, do not count."""
    return one.backend.get_vocab() == other.backend.get_vocab() or one.vocabulary == other.vocabulary


def _marks(token: AddedToken, template: str) -> bool:
    """True where an added, not special token is a mark of the template, not a word, indent or row of dashes."""
    text = str(token.content)
    outside = text[:1] + text[-1:]
    shaped = not any(c.isalnum() or c.isspace() for c in outside) and any(c.isalnum() for c in text)
    return shaped and text in template
