"""Tells calls from answer text while a reply is written."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specchat.engine.protocol.options import CallDelta, CutCalls, Tool, ToolCall
from specchat.engine.tool_calls.form import CallForm
from specchat.engine.tool_calls.giving import schema_of
from specchat.engine.tool_calls.parsing import ReadCall, read_calls
from specchat.engine.tool_calls.streaming import CallStream


class CallProgress(NamedTuple):
    """Calls since the last time.

    Attributes:
        text: text of calls as it is written, marks included.
        calls: calls that are complete.
        deltas: pieces of arguments; a complete call whose form cannot be followed has none.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    deltas: tuple[CallDelta, ...] = ()


class CallIds:
    """Identifiers of calls: those that the model writes, or else those of `others`."""

    def __init__(self, others: Iterator[str]) -> None:
        self._others, self._written = others, set[str]()

    def of(self, written: str) -> str:
        """The identifier that the model wrote, unless it has one for several calls."""
        if not written or written in self._written:
            return next(self._others)
        self._written.add(written)
        return written


@dataclass
class OpenCall:
    """The call that is being written, or the last one.

    Attributes:
        raw: its text, the opening mark included; None outside.
        space: white space before it.
        name: where a header has it.
    """

    stream: CallStream
    raw: str | None = None
    space: str = ""
    name: str = ""


class CallReader:
    """Takes the answer's text as it comes, and gives back what is no call.

    Text that may begin a call is held back, and so is white space, which templates put between an answer and a call. A
    call that cannot be read comes back as text.

    Attributes:
        calls: the calls so far.
        unreadable: number of calls that could not be read.
    """

    def __init__(self, form: CallForm, tools: Sequence[Tool], ids: Iterator[str], tokens: frozenset[str]) -> None:
        """`ids` names calls whose model does not; marks among `tokens` are read from tokens alone."""
        self.calls: list[ToolCall] = []
        self.unreadable = 0
        self.tokens = tokens
        self._form = form
        self._ids = CallIds(ids)
        self._schemas = {tool.name: schema_of(tool) for tool in tools}
        self._held = ""
        self._call = OpenCall(CallStream(form, ()))
        self._taken = 0
        """Calls that were taken; `_progress` has the rest of what is to be taken."""
        self._progress = CallProgress()
        self._begun = False
        """True once the reply has text that is no call."""

    @property
    def inside(self) -> bool:
        """True while a call is written."""
        return self._call.raw is not None

    @property
    def cut_calls(self) -> CutCalls:
        """The calls that are being written; text that may become one has no more than that."""
        raw, stream = self._call.raw, self._call.stream
        if raw is None:
            return CutCalls(text=self._held if self._held.strip() else "")
        found = {number: ToolCall(call.id, call.name, "".join(call.pieces)) for number, call in stream.found.items()}
        last = found.pop(stream.number, None)
        before = tuple(call for number, call in found.items() if stream.found[number].arguments)
        return CutCalls(before, last, raw[-stream.last_length :] if before else raw)

    def opens(self, mark: str) -> bool:
        """True if the token `mark` begins calls."""
        return mark == self._form.opening

    def take(self) -> CallProgress:
        """Calls since the last time."""
        calls, self._taken = tuple(self.calls[self._taken :]), len(self.calls)
        self._follow()
        taken, self._progress = self._progress._replace(calls=calls), CallProgress()
        return taken

    def feed(self, text: str) -> str:
        """Take text of the answer or of a call; gives back answer text."""
        if self._call.raw is not None:
            return self._continue(text)
        text, self._held = self._held + text, ""
        if not self._form.opening:
            return self._bare(text)
        at = -1 if self._form.opening in self.tokens else self._find(text)
        if at >= 0:
            before, rest = text[:at], text[at + len(self._form.opening) :]
            self._held = before
            return self._begin(self._form.opening) + self.feed(rest)
        return self._release(text, self._safe(text))

    def mark(self, mark: str) -> str:
        """Take a token that is a mark of calls; gives back answer text."""
        if self._call.raw is None:
            return self._begin(mark)
        if self.opens(mark):
            text = self._close()
            self._open(mark)
            return text
        self._write(mark)
        return self._close() if mark == self._form.closing else ""

    def address(self, name: str) -> str:
        """Begin a call of the function `name`, which the header of a part has; gives back answer text."""
        self._call.name = name
        return self._begin("")

    def leave(self) -> str:
        """End the part that a header began; gives back answer text."""
        return self._close() if self._call.raw is not None else ""

    def finish(self, *, complete: bool) -> str:
        """End the reply; gives back the rest of the answer. What may be a call that was cut stays in `cut_calls`."""
        if not complete:
            return ""
        text = self._close() if self._call.raw is not None else ""
        held, self._held = self._held, ""
        if self.calls and not held.strip():
            return text
        at = self._bare_call(held) if not self._form.opening else len(held)
        if at < len(held):
            self._call.space = held[:at]
            self._open(held[at:])
            return text + self._close()
        return text + held

    def _find(self, text: str) -> int:
        """The place of the opening mark, or -1; one that is a word does not count within another."""
        opening = self._form.opening
        found = re.search(rf"(?<!\w){re.escape(opening)}" if opening[0].isalnum() else re.escape(opening), text)
        return -1 if found is None else found.start()

    def _safe(self, text: str) -> int:
        """Characters that can be given back: neither white space at the end nor the start of a mark."""
        opening = self._form.opening
        most = 0 if opening in self.tokens else min(len(opening) - 1, len(text))
        begun = next((n for n in range(most, 0, -1) if text.endswith(opening[:n])), 0)
        return len(text[: len(text) - begun].rstrip())

    def _release(self, text: str, length: int) -> str:
        self._held = text[length:]
        return self._answer(text[:length])

    def _answer(self, text: str) -> str:
        if text.strip():
            self._begun = True
        return text

    def _bare(self, text: str) -> str:
        """Text of a reply that begins with the call itself, or of an answer that a call may follow."""
        at = self._bare_call(text)
        return self._release(text, len(text[:at].rstrip()) if self._form.later or self.calls else at)

    def _bare_call(self, text: str) -> int:
        """The place of what may be or become a call without an opening mark; the length of `text` if there is none."""
        if not self._begun and self._candidate(text):
            return 0
        later = self._form.later
        at = text.find(later) if later else -1
        while at >= 0 and not self._candidate(text[at + len(later) :]):
            at = text.find(later, at + 1)
        begun = next((n for n in range(len(later) - 1, 0, -1) if text.endswith(later[:n])), 0)
        return at if at >= 0 else len(text) - begun

    def _candidate(self, text: str) -> bool:
        """True while the text may become a call: an object with a name, or the name of a tool."""
        begun = text.lstrip()
        if self._form.kind == "named":
            names = [f"{name}\n" for name in self._schemas]
            return any(name.startswith(begun) or begun.startswith(name) for name in names)
        begun = re.sub(r"\A\[\s*", "", begun)
        key = re.sub(r"\A\{\s*", "{", begun)
        starts = [f'{{"{key}"' for key in (self._form.keys.name, self._form.keys.arguments, "type", "function")]
        return not key or any(start.startswith(key) or key.startswith(start) for start in starts)

    def _begin(self, mark: str) -> str:
        held, self._held = self._held, ""
        answer = held.rstrip()
        self._call.space = held[len(answer) :]
        self._open(mark)
        return self._answer(answer)

    def _open(self, mark: str) -> None:
        self._call.raw = mark
        self._show(mark)
        self._call.stream = CallStream(self._form, self._schemas.keys(), self._call.name)

    def _write(self, text: str) -> None:
        """Add text to the call that is being written."""
        assert self._call.raw is not None
        self._call.raw += text
        self._show(text)
        self._call.stream.feed(text)

    def _show(self, text: str) -> None:
        self._progress = self._progress._replace(text=self._progress.text + text)

    def _follow(self) -> None:
        """Tell how far the calls that are being written have come."""
        for call in self._call.stream.found.values():
            begins = call.told < 0
            if (text := call.take()) is not None:
                call.id = self._ids.of(call.id) if begins else call.id
                delta = CallDelta(call.id, call.name, text)
                self._progress = self._progress._replace(deltas=(*self._progress.deltas, delta))

    def _continue(self, text: str) -> str:
        assert self._call.raw is not None
        before, raw = len(self._call.raw), self._call.raw + text
        closing = self._form.closing
        if closing and closing not in self.tokens:
            at = raw.find(closing, max(len(self._form.opening), before - len(closing) + 1))
            while at >= 0:
                end = at + len(closing)
                if self._readable(raw[:at]) or not self._unfinished(raw[:at]):
                    self._write(raw[before:end])
                    return self._close() + self.feed(raw[end:])
                at = raw.find(closing, end)
        self._write(text)
        return ""

    def _inner(self, raw: str) -> str:
        return raw.removeprefix(self._form.opening).removesuffix(self._form.closing)

    def _readable(self, raw: str) -> bool:
        return bool(read_calls(self._inner(raw), self._form, self._schemas))

    def _unfinished(self, raw: str) -> bool:
        """True for JSON that ends within a text: the closing mark in it is a part of that."""
        if self._form.kind not in ("object", "named"):
            return False
        inner = raw[raw.find("{") :] if "{" in raw else ""
        try:
            json.loads(inner, strict=False)
        except json.JSONDecodeError as error:
            return "Unterminated string" in error.msg
        except RecursionError:
            return False
        return False

    def _close(self) -> str:
        """End the call; gives back its text where it cannot be read."""
        self._follow()
        of = self._call
        raw, name, space, of.raw, of.name, of.space = of.raw or "", of.name, of.space, None, "", ""
        found = read_calls(self._inner(raw), self._form, self._schemas) or self._call.stream.complete()
        bare = not self._form.opening and self._form.kind != "channel"
        if not found or (bare and any(call.name not in self._schemas for call in found)):
            self.unreadable += not bare
            return self._answer(space + raw)
        self.calls += [self._made(number, call, name) for number, call in enumerate(found)]
        return ""

    def _made(self, number: int, call: ReadCall, name: str) -> ToolCall:
        """A call as it was told while it was written, or as it was read."""
        followed = self._call.stream.found.get(number)
        if followed is None:
            return ToolCall(self._ids.of(call.id), call.name or name, call.arguments)
        return ToolCall(followed.id, followed.name, followed.arguments or call.arguments)
