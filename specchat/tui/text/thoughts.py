"""Reasoning as rows: one line that says how much there is, the text below it when unfolded."""

from textual.content import Content
from textual.style import Style

from specchat.chat.reasoning import Thought
from specchat.chat.turn import Reply
from specchat.tui.text.lines import Section, TextLine, hang, styled

_BAR = styled("▎ ", ".md-quote-bar")


class ThoughtView:
    """One thought of a reply. Its whole lines are frozen, as they never change."""

    def __init__(self, reply: Reply, *, unfolded: bool) -> None:
        self._reply = reply
        self._unfolded = unfolded
        self._lines: list[Section] = []
        self._taken = -1
        self._head: tuple[str, Section] | None = None

    def sections(self, thought: Thought, *, closed: bool) -> list[Section]:
        """The line, and the text so far."""
        text = self._reply.text
        words = len(text[thought.inner_start : thought.inner_end].split())
        amount = "1 word" if words == 1 else f"{words:,} words"
        says = (
            f"thought for {amount}"
            if closed
            else f"thinking was cut off after {amount}"
            if self._reply.ended
            else f"thinking… {amount}"
        )
        head = self._head_section(f"{'▾' if self._unfolded else '▸'} {says}", thought)
        return [head, *self._body(text, thought, closed=closed)] if self._unfolded else [head]

    def _head_section(self, says: str, thought: Thought) -> Section:
        if self._head is not None and self._head[0] == says:
            return self._head[1]
        action = "enter/click " + ("folds" if self._unfolded else "unfolds")
        content = (styled(says, ".thought") + styled(f" · {action}", ".hint")).stylize(
            Style.from_meta({"fold": self._reply.key})
        )

        def layout(width: int) -> list[TextLine]:
            return [TextLine(line.content, copied=False) for line in hang(content, width)]

        section = Section(layout, thought.start, thought.end, self._reply)
        self._head = says, section
        return section

    def _body(self, text: str, thought: Thought, *, closed: bool) -> list[Section]:
        if self._taken < 0:
            inner = text[thought.inner_start : thought.inner_end]
            if not inner.strip():
                return []
            self._taken = thought.inner_start + len(inner) - len(inner.lstrip("\n"))
        while (end := text.find("\n", self._taken, thought.inner_end)) >= 0:
            self._lines.append(self._line(text, self._taken, end))
            self._taken = end + 1
        rest = text[self._taken : thought.inner_end]
        if not rest.strip():
            return list(self._lines)
        last = self._line(text, self._taken, thought.inner_end)
        if closed:
            self._lines.append(last)
            self._taken = thought.inner_end
            return list(self._lines)
        return [*self._lines, last]

    def _line(self, text: str, start: int, end: int) -> Section:
        content = Content.styled(text[start:end], ".thought")
        return Section(lambda width: hang(content, width, _BAR, _BAR), start, max(end, start + 1), self._reply)


def fold_of(line: TextLine) -> str:
    """The key of what the row folds and unfolds, a reply's reasoning or a file; empty where it is other text."""
    metas = (span.style.meta for span in line.content.spans if isinstance(span.style, Style))
    return next((str(meta["fold"]) for meta in metas if "fold" in meta), "")
