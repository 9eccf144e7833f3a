"""A chat template; probes that it renders show its format."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import jinja2
import jinja2.meta

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.foreign import shown
from specchat.engine.protocol.options import Arguments, Message, Tool
from specchat.engine.text.chat_format import ARGUMENTS, FIELDS, PART, ChatFormat, Content
from specchat.engine.text.marks import MARKS, SENTENCES, Marks, begins_answer, channels_of, closing_of
from specchat.engine.text.sandbox import Sandbox
from specchat.engine.text.sizes import TemplateBoundError
from specchat.engine.text.template import compile_template, render
from specchat.engine.text.template_choices import choices
from specchat.engine.text.turns import turns_of
from specchat.engine.tool_calls.form import ToolFormat
from specchat.engine.tool_calls.giving import given_tools
from specchat.engine.tool_calls.probe import tool_format
from specchat.engine.tool_calls.samples import TOOL

SYSTEM, ASKED, THOUGHT, ANSWERED, AGAIN = "Quillfern", "Ombrasket", "Velodrift", "Tamblewick", "Gorsehaven"
"""Probe words that no template contains, one for each part of a chat."""
STANDARD = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"}
MOST_S = 4.0
"""Time limit of a prompt, and of all probes together."""
_TAG = r"(?:<\|?[^<>\s]{1,40}>|\[[^\[\]\n]{1,40}\]|◁[^◁▷\s]{1,40}▷)"
_LAST_TAG = re.compile(rf"({_TAG})\s*\Z")
_FIRST_TAG = re.compile(rf"\s*({_TAG})")
_LIST = re.compile(r"[\"']type[\"']: ?[\"']thinking")
"""A content that the template writes as a Python list, without formatting."""
_RECIPIENT = re.compile(r"\w+\n")
_PAIR = re.compile(r"<(/?)([a-z_:]{3,24})>")


class ChatTemplate:
    """A chat template with the texts of `special` tokens and of added `tokens`."""

    def __init__(self, source: str, where: str, special: Mapping[str, str], tokens: Collection[str]) -> None:
        """`where` names the template's file in messages.

        Raises:
            ModelError: it does not parse.
        """
        self.source = source
        self.where = where
        self._special = special
        self._tokens = sorted(tokens, key=len, reverse=True)
        self._compiled = compile_template(source, where)
        self._arguments: Mapping[str, Any] = {}
        self.picture: tuple[str, str] | None = None
        """The mark that it writes for a picture, and the text in its place."""

    def use(self, arguments: Mapping[str, Any]) -> None:
        """Give `arguments` to the template from now on; before anything is rendered.

        Raises:
            ModelError: it does not take one of them.
        """
        if unknown := sorted(set(arguments) - self._undeclared):
            taken = ", ".join(name for name in ARGUMENTS if name in self._undeclared) or "none for reasoning"
            raise ModelError(f"{self.where}: the chat template takes no argument {shown(unknown[0])} ({taken}).")
        self._arguments = arguments

    def given(self, arguments: Arguments) -> "ChatTemplate":
        """The template with further `arguments`, less those that it does not take."""
        made = copy(self)
        made.__dict__.pop("format", None)
        made._arguments = {**self._arguments, **{name: value for name, value in arguments if name in self._undeclared}}
        return made

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """Render a chat up to the assistant's reply, which may call `tools`.

        Raises:
            ModelError: the template rejects it; the message has its own words.
        """
        form = self.format
        self._allow()
        try:
            text = self._rendered(messages, form, tools)
            return text if self.picture is None else text.replace(*self.picture)
        except MemoryError:
            raise
        except Exception as error:  # a template is an untrusted program
            words = one_line(str(error), 300) or type(error).__name__
            raise ModelError(f"The chat template refuses this chat: {words.rstrip('.')}.") from None

    @cached_property
    def format(self) -> ChatFormat:
        """The template's format, found with probes.

        Raises:
            ModelError: the prompt lacks a chat in every form, or the probes take too long.
        """
        self._allow()
        try:
            return self._found()
        except TemplateBoundError as error:
            why = f"{self.where}: the chat template cannot be used: {error}. Take a checkpoint with another template."
            raise ModelError(why) from None

    def _allow(self) -> None:
        """Start the time limit."""
        if isinstance(sandbox := self._compiled.environment, Sandbox):
            sandbox.allow(MOST_S)

    def _found(self) -> ChatFormat:
        base = self._base()
        system = self._shows(base, [Message("system", SYSTEM), Message("user", ASKED)], SYSTEM, ASKED)
        reasoning = next((name for name in (*FIELDS, PART) if self._shows_reasoning(base, name)), "")
        channels = channels_of(self._tokens)
        opened, marks = self._marks(base, reasoning)
        turn_end, stop = self._end(base, marks)
        prompt = self._tried([Message("user", ASKED)], base)
        late = ([_CHAT[0], Message("system", SYSTEM)], [*_CHAT[:2], Message("system", SYSTEM), _CHAT[2]])
        return ChatFormat(
            base.content,
            base.arguments,
            base.headed,
            system,
            reasoning,
            turn_end,
            stop,
            marks,
            opened,
            channels,
            bool(channels and channels.start and channels.content not in prompt.rpartition(channels.start)[2]),
            "" if channels or opened else self._recipient(base, prompt),
            tuple(name for name in ARGUMENTS if name in self._undeclared),
            tuple(choices(lambda more: self._tried([Message("user", ASKED)], base, (), **more), self._undeclared)),
            self._tools(base, marks, turn_end),
            tuple(self._dropped(base, system)),
            all(SYSTEM in self._tried(chat, base).partition(ASKED)[2] for chat in late),
            not self._shows(base, [_CHAT[0], _CHAT[2]], ASKED, AGAIN),
        )

    @cached_property
    def _undeclared(self) -> set[str]:
        """Names of variables that the template reads."""
        return jinja2.meta.find_undeclared_variables(self._compiled.environment.parse(self.source)) - STANDARD

    def _base(self) -> ChatFormat:
        """The first form of content and arguments in which the template shows the chat.

        Raises:
            ModelError: there is none.
        """
        nothing = dict.fromkeys(sorted(self._undeclared - self._special.keys()), "")
        arguments: tuple[dict[str, Any], ...] = ({}, {"tools": []}, {"tools": [], **nothing})
        contents: tuple[Content, ...] = ("text", "parts", "assignable")
        forms = [ChatFormat(*form) for form in product(contents, arguments, (False, True))]
        for chat, words in ((_CHAT, (ASKED, ANSWERED, AGAIN)), (_CHAT, (AGAIN,)), (_CHAT[:1], (ASKED,))):
            for form in forms:
                if self._shows(form, chat, *words):
                    return form
        why = f" ({self._refusal(forms[0])})" if self._refusal(forms[0]) else ""
        raise ModelError(
            f"{self.where}: the chat template leaves out what is asked{why}. Take a checkpoint with another template."
        )

    def _refusal(self, form: ChatFormat) -> str:
        try:
            self._rendered(_CHAT[:1], form)
        except Exception as error:
            return one_line(str(error), 200) or type(error).__name__
        return ""

    def _rendered(
        self, messages: Sequence[Message], form: ChatFormat, tools: Sequence[Tool] = (), **options: Any
    ) -> str:
        answering = options.pop("answering", True)
        given = given_tools(tools, form.tools) if tools and form.tools is not None else {}
        arguments = {**form.arguments, **given, **self._arguments, **options}
        return render(self._compiled, turns_of(messages, form), self._special, arguments, answering=answering)

    def _tried(self, messages: Sequence[Message], form: ChatFormat, tools: Sequence[Tool] = (), **options: Any) -> str:
        """The chat as text; empty where the template rejects it."""
        try:
            return self._rendered(messages, form, tools, **options)
        except TemplateBoundError:
            raise
        except Exception:  # a template is an untrusted program
            return ""

    def _shows(self, form: ChatFormat, messages: Sequence[Message], *words: str) -> bool:
        text = self._tried(messages, form)
        # Some templates write a chat in lower case.
        return all(word in text or word.lower() in text for word in words)

    def _shows_reasoning(self, base: ChatFormat, name: str) -> bool:
        form = _with_reasoning(base, name)
        texts = [self._tried(chat, form, answering=False) for chat in (_THOUGHT, _THOUGHT[:2])]
        return any(THOUGHT in text and not _LIST.search(text) for text in texts)

    def _tools(self, base: ChatFormat, marks: Sequence[Marks], turn_end: str) -> ToolFormat | None:
        def show(messages: Sequence[Message], form: ToolFormat, answering: bool) -> str:
            return self._tried(messages, replace(base, tools=form), (TOOL,), answering=answering)

        found = tool_format(show, self._tokens, self.source, [mark.closing for mark in marks])
        # A call behind the token that ends replies is never written.
        return None if found and found.call.opening and found.call.opening == turn_end else found

    def _dropped(self, base: ChatFormat, system: bool) -> Iterator[str]:
        if not self._shows(base, _CHAT, ASKED, ANSWERED):
            yield "earlier turns"
        if not system:
            yield "system role"

    def _end(self, base: ChatFormat, marks: Sequence[Marks]) -> tuple[str, str]:
        """The token, or else the text, right after an assistant's message."""
        inner = {mark for pair in marks for mark in (pair.opening, pair.closing)}
        ended = self._tried(_CHAT[:2], base, answering=False).rpartition(ANSWERED)[2]
        between = self._tried(_CHAT, base).partition(ANSWERED)[2].partition(AGAIN)[0]
        for text in (ended, between):
            behind = text.lstrip()
            token = next((t for t in self._tokens if behind.startswith(t) and t not in inner), "")
            if token:
                return token, ""
        return "", between.rstrip() if _ends_turns(between.rstrip()) else ""

    def _recipient(self, base: ChatFormat, prompt: str) -> str:
        """The line of one word that the template puts between the end of a prompt and an answer; empty if none."""
        said = self._tried(_CHAT[:2], base, answering=False).partition(ANSWERED)[0]
        line = said.removeprefix(prompt) if prompt and said.startswith(prompt) else ""
        return line if _RECIPIENT.fullmatch(line) else ""

    def _marks(self, base: ChatFormat, reasoning: str) -> tuple[Marks | None, tuple[Marks, ...]]:
        """The marks whose opening ends the prompt, if any; and all marks, those of the template first."""
        plain = self._tried(_CHAT[:2], base, answering=False).partition(ANSWERED)[0]
        found: list[Marks] = []
        if reasoning:
            text = self._tried(_THOUGHT[:2], _with_reasoning(base, reasoning), answering=False)
            before, _, after = text.partition(THOUGHT)
            opening, closing = _LAST_TAG.search(before), _FIRST_TAG.match(after)
            if opening and closing and not plain.rstrip().endswith(opening[1]) and ANSWERED not in closing[1]:
                found.append(Marks(opening[1], closing[1]))
        prompt = self._tried(_CHAT[:1], base).rstrip()
        last = _LAST_TAG.search(prompt)
        if last and not plain.rstrip().endswith(last[1]) and not begins_answer(last[1]):
            other = closing_of(last[1])
            found += [Marks(last[1], other)] if other in (*self._tokens, *self._pairs) else []
        found += [marks for marks in self._named() if self._strips(base, marks)]
        named = [marks for marks in (*MARKS, *SENTENCES) if marks.closing in self.source]
        every = tuple(dict.fromkeys((*found, *named, *MARKS)))
        return next((marks for marks in every if prompt.endswith(marks.opening)), None), every

    @cached_property
    def _pairs(self) -> set[str]:
        """Tags in the template's source."""
        return {match[0] for match in _PAIR.finditer(self.source)}

    def _named(self) -> list[Marks]:
        """Pairs of tags in the template's source."""
        names = sorted({match[2] for match in _PAIR.finditer(self.source) if match[1]})
        return [Marks(f"<{name}>", f"</{name}>") for name in names]

    def _strips(self, base: ChatFormat, marks: Marks) -> bool:
        """True where the template removes text between marks from earlier replies."""
        said = Message("assistant", f"{marks.opening}{THOUGHT}{marks.closing}{ANSWERED}")
        text = self._tried([_CHAT[0], said, _CHAT[2]], base)
        return ANSWERED in text and THOUGHT not in text


def _ends_turns(text: str) -> bool:
    """True for a text that ends replies and hardly ever occurs inside; not for a rule, a full stop or a role's name."""
    return any(c.isalnum() for c in text) and any(c == "\n" or not (c.isalnum() or c.isspace()) for c in text)


_CHAT = (Message("user", ASKED), Message("assistant", ANSWERED), Message("user", AGAIN))
_THOUGHT = (Message("user", ASKED), Message("assistant", ANSWERED, THOUGHT), Message("user", AGAIN))


def _with_reasoning(form: ChatFormat, name: str) -> ChatFormat:
    return ChatFormat(form.content, form.arguments, form.headed, reasoning=name)
