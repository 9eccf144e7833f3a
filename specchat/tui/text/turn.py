"""A turn as sections: who speaks, the prompt, the reply as Markdown or as tokens, and what it cost."""

import math
from collections.abc import Container, Sequence
from typing import Any

from specchat.chat.fork import Fork
from specchat.chat.reasoning import Reasoning
from specchat.chat.turn import Reply, Turn
from specchat.insight.footer import footer, reading, whole_footer
from specchat.tui.text.blocks import BlockSplitter, TextBlock
from specchat.tui.text.calls import CallsView
from specchat.tui.text.code import SLICE_S, Highlighting, OpenCode, box, language_of
from specchat.tui.text.lines import BLANK, Section, TextLine, hang, styled, tagged
from specchat.tui.text.markdown import MarkdownPart, block_lines, parse
from specchat.tui.text.pictures import Graphics
from specchat.tui.text.prompt_rows import prompt_sections
from specchat.tui.text.thoughts import ThoughtView
from specchat.tui.text.tokens import TokenView

_OPEN_PARSED = 1000
"""Characters up to which the open block is shown as Markdown; beyond it is plain text until it closes."""

_WAITING = {
    "queued": "waiting for the model",
    "preparing": "waiting for the servers of the tools",
    "waiting": "waiting for another chat to be answered",
}


class AnswerBlocks:
    """The blocks of a reply's answer, between its parts of reasoning."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._taken = 0
        self._start = 0
        """Start of the part of the answer that is being taken in."""
        self._splitter = BlockSplitter()

    @property
    def tail(self) -> TextBlock | None:
        """The block being written."""
        return self._splitter.tail

    def until(self, end: int) -> list[TextBlock]:
        """The blocks that close as the text up to `end` is taken in."""
        blocks = self._splitter.feed(self._reply.text[self._taken : end]) if end > self._taken else []
        self._taken = max(end, self._taken)
        return blocks

    def begin(self, start: int) -> None:
        """Go on with the answer at `start`, after reasoning."""
        self._taken = self._start = start
        self._splitter = BlockSplitter(start)

    def end(self, end: int) -> list[TextBlock]:
        """Close the text up to `end`, where reasoning begins."""
        if end <= self._start:
            return []
        blocks = [*self.until(end), *self.close()]
        self._start, self._splitter = end, BlockSplitter(end)
        return blocks

    def close(self) -> list[TextBlock]:
        """The blocks that end with the text."""
        return list(self._splitter.close())


class MarkdownView:
    """A reply's reasoning and closed blocks as frozen sections, and the block being written."""

    def __init__(self, reply: Reply, *, unfolded: bool) -> None:
        self._reply = reply
        self._unfolded = unfolded
        self._reasoning = Reasoning(reply)
        self._thought = ThoughtView(reply, unfolded=unfolded)
        self._thoughts = 0
        self._answer = AnswerBlocks(reply)
        self._marks = 0
        self._closed = False
        self._open_code = OpenCode()
        self._late: dict[int, tuple[TextBlock, Highlighting]] = {}
        """Closed code that is not highlighted yet, by its place in `frozen`."""
        self.frozen: list[Section] = []

    def update(self) -> None:
        """Take in the text that came since the last call."""
        reply = self._reply
        self._reasoning.update()
        self._take_thoughts()
        if self._reasoning.thinking is None:
            self._freeze(self._answer.until(reply.length))
            if reply.ended and not self._closed:
                self._closed = True
                self._freeze(self._answer.close())
        for place, (block, job) in list(self._late.items()):
            if job.run(math.inf if reply.ended else SLICE_S):
                self.frozen[place] = _code_section(block, reply, job)
                del self._late[place]

    def _close_code(self, block: TextBlock) -> Section:
        """Closed code; as it was shown before where highlighting it takes longer than a reply may wait for."""
        job = Highlighting(block.body, language_of(block.info))
        if job.run(math.inf if self._reply.ended else SLICE_S):
            return _code_section(block, self._reply, job)
        self._late[len(self.frozen)] = block, job
        return _open_code_section(block, self._reply, self._open_code)

    def _freeze(self, blocks: Sequence[TextBlock]) -> None:
        for block in blocks:
            self._take_marks(block.end)
            self.frozen.append(self._close_code(block) if block.code else _block_section(block, self._reply))
            self._open_code = OpenCode()

    def _take_thoughts(self) -> None:
        """Freeze what stands before reasoning, and reasoning that is closed."""
        thoughts, thinking = self._reasoning.thoughts, self._reasoning.thinking
        for thought in thoughts[self._thoughts :]:
            self._freeze(self._answer.end(thought.start))
            self._take_marks(thought.end)
            self.frozen += self._thought.sections(thought, closed=True)
            self._thought = ThoughtView(self._reply, unfolded=self._unfolded)
            self._answer.begin(thought.end)
        self._thoughts = len(thoughts)
        if thinking is not None:
            self._freeze(self._answer.end(thinking.start))

    def _take_marks(self, offset: int) -> None:
        marks = self._reply.marks
        while self._marks < len(marks) and marks[self._marks].offset < offset:
            self.frozen.append(_ornament(f"⟨{marks[self._marks].text}⟩", ".mark"))
            self._marks += 1

    def open(self) -> list[Section]:
        """Marks that came since the last closed block, above the block being written."""
        sections = [_ornament(f"⟨{mark.text}⟩", ".mark") for mark in self._reply.marks[self._marks :]]
        if (thought := self._reasoning.thinking) is not None:
            return [*sections, *self._thought.sections(thought, closed=False)]
        tail = self._answer.tail
        if tail is None:
            return sections
        if tail.code:
            return [*sections, _open_code_section(tail, self._reply, self._open_code)]
        return [*sections, _block_section(tail, self._reply, parsed=len(tail.source) <= _OPEN_PARSED)]


def _spaced(block: TextBlock, lines: Sequence[TextLine]) -> list[TextLine]:
    return [BLANK, *lines] if block.spaced else list(lines)


def _open_code_section(block: TextBlock, reply: Reply, rows: OpenCode) -> Section:
    body, language = block.body, language_of(block.info)
    return Section(lambda width: _spaced(block, rows.lines(body, language, width)), block.start, block.end, reply)


def _code_section(block: TextBlock, reply: Reply, job: Highlighting) -> Section:
    code, language = job.content, language_of(block.info)
    return Section(lambda width: _spaced(block, box(code, language, width)), block.start, block.end, reply)


def _block_section(block: TextBlock, reply: Reply, *, parsed: bool = True) -> Section:
    """Any block but code."""
    if block.math:
        formula = MarkdownPart("math", text=styled(block.source.strip()))
        return Section(lambda width: _spaced(block, formula.lines(width)), block.start, block.end, reply)
    if not parsed:
        text = styled(block.source.rstrip("\n"))
        return Section(lambda width: _spaced(block, hang(text, width)), block.start, block.end, reply)

    def layout(width: int) -> list[TextLine]:
        return _spaced(block, block_lines(parse(block.source), width))

    return Section(layout, block.start, block.end, reply)


def _ornament(text: str, style: str, *, above: bool = False) -> Section:
    def layout(width: int) -> list[TextLine]:
        lines = [TextLine(line.content, copied=False) for line in hang(styled(text, style), width)]
        return [BLANK, *lines] if above else lines

    return Section(layout)


class FootView:
    """The sections below a reply: what it waits for, and its outcome and figures at the end."""

    def __init__(self) -> None:
        self._sections: list[Section] = []
        self._key: tuple[str, ...] = ()

    def update(self, reply: Reply) -> list[Section]:
        if not reply.ended:
            words = reading(reply) or _WAITING.get(reply.state, "")
            key: tuple[str, ...] = (words,)
            sections = [_ornament(words, ".hint")] if words and self._key != key else self._sections
        else:
            key = (reply.state, reply.outcome, footer(reply))
            if key == self._key:
                return self._sections
            style = ".failed" if reply.state == "failed" else ".hint"
            sections = [_ornament(reply.outcome, style, above=bool(reply.text))] if reply.outcome else []
            if foot := footer(reply):
                sections.append(_footer_section(foot, whole_footer(reply), above=not sections))
        self._sections, self._key = (sections if any(key) else []), key
        return self._sections


class TurnView:
    """The sections of one turn. Ask `sections` again after the turn changed: what stayed is the same object."""

    def __init__(
        self,
        turn: Turn,
        *,
        first: bool,
        token_view: bool,
        version_keys: str = "",
        siblings: Fork[Turn] | None = None,
        unfolded: Container[str] = (),
        graphics: Graphics | None = None,
    ) -> None:
        """`version_keys` show other versions of it, `siblings` are the prompts at its place; `unfolded` holds the keys
        of replies whose reasoning is shown, of prompts' files whose text is, and of calls that are shown whole.
        `graphics` draw pictures."""
        self.turn = turn
        self._token_view = token_view
        self._unfolded = unfolded
        self._version_keys = version_keys
        version = _version("prompt", siblings, version_keys)
        if turn.results:  # they show with the calls before them
            self._prompt = [_head(version, ".role-you", above=True)] if version else []
        else:
            self._prompt = [_head(version, ".role-you", above=not first), *prompt_sections(turn, unfolded, graphics)]
        self.shown: list[Section] = []
        """The last result of `sections`."""
        self._reply: Reply | None = None
        self._state: tuple[bool, bool, bool, int] = (False, False, False, 0)
        self._view: MarkdownView | TokenView | None = None
        self._calls = CallsView()
        self._head: list[Section] = []
        self._dropped = 0
        self._foot = FootView()

    @property
    def prompt_sections(self) -> int:
        """Number of the first sections, which show the prompt."""
        return len(self._prompt)

    def sections(self) -> list[Section]:
        self.shown = self._sections()
        return self.shown

    def _sections(self) -> list[Section]:
        reply = self.turn.reply
        if reply is None:
            return self._prompt
        unfolded = reply.key in self._unfolded
        ended = reply.ended and bool(reply.marks)  # at the end, marks know the speed after them
        changes = 0 if reply.ended else len(reply.record.changes)  # one more may join the mark of those before
        if reply is not self._reply or (reply.rewritten, ended, unfolded, changes) != self._state:
            self._reply, self._state = reply, (reply.rewritten, ended, unfolded, changes)
            tokens = self._token_view and (bool(reply.steps) or not reply.ended)
            self._view = TokenView(reply) if tokens else MarkdownView(reply, unfolded=unfolded)
            again = _version("reply", self.turn.replies, self._version_keys)
            self._head, self._dropped = [_head(again, ".role-model", above=True)], 0
        if reply.prompt.dropped != self._dropped:
            self._dropped = reply.prompt.dropped
            self._head = [self._head[0], _ornament(reply.left_out, ".hint")]
        view = self._view
        if view is None:
            return self._prompt
        view.update()
        foot = self._foot.update(reply)
        calls = self._calls.sections(reply, self._unfolded) if reply.tool_calls else []
        return [*self._prompt, *self._head, *view.frozen, *view.open(), *calls, *foot]


def _footer_section(short: str, whole: str, *, above: bool) -> Section:
    def layout(width: int) -> list[TextLine]:
        more, less = (styled(text, ".footer").truncate(width, ellipsis=True) for text in (whole, short))
        line = TextLine(tagged(less, more=True), copied=False, more=more)
        return [BLANK, line] if above else [line]

    return Section(layout)


def _version(name: str, fork: Fork[Any] | None, keys: str) -> str:
    """`reply 2 of 3`, with the keys for the others; empty where there is one alone."""
    others = f" · {keys} show others" if keys else ""
    return f"{name} {fork.number} of {len(fork)}{others}" if fork is not None and len(fork) > 1 else ""


def _head(words: str, style: str, *, above: bool) -> Section:
    """The rows above a message: an empty row, and `words` where there are any."""
    return _ornament(words, style, above=above) if words else Section(lambda _: [BLANK] if above else [])
