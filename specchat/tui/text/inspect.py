"""The token under the cursor of the token view: where it is, and what is known of the step that wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.engine.api import Step
from specchat.tui.text.lines import EMPTY, Line, styled
from specchat.tui.text.parts import parts_of
from specchat.tui.text.sources import REJECTED, source_of
from specchat.tui.text.tokens import Token, TokenSection

_MOST = 24
"""Characters of a token that are shown."""


@dataclass(frozen=True)
class Wanted:
    """A drafted token, the probability that the drafter gave it (None where it has none to tell), and its fate."""

    text: str
    probability: float | None
    kept: bool


def wanted(step: Step) -> list[Wanted]:
    """The draft's proposals for `step`, in order."""
    return [
        Wanted(drafted.text, drafted.probability, number < step.accepted) for number, drafted in enumerate(step.drafts)
    ]


def cells_of(section: TokenSection, token: Token, lines: Sequence[Line]) -> list[tuple[int, int, int]]:
    """The rows of `section` that show `token`, with the characters from and up to which they do."""
    cells: list[tuple[int, int, int]] = []
    for row, (line, begin) in enumerate(zip(lines, _begins(section.plain, lines), strict=True)):
        low, high = max(token.start - begin, 0), min(token.end - begin, len(line.content))
        if low < high:
            cells.append((row, low, high))
    return cells


def token_at(section: TokenSection, row: int, lines: Sequence[Line], column: int = 0) -> Token | None:
    """The token shown in row `row` at `column` or after it, else the nearest one before."""
    begins = _begins(section.plain, lines)
    at = begins[row] + column if row < len(begins) else 0
    after = next((token for token in section.tokens if token.end > at), None)
    return after or (section.tokens[-1] if section.tokens else None)


def _begins(plain: str, lines: Sequence[Line]) -> list[int]:
    """Where in `plain` each row begins: wrapping leaves out spaces between rows."""
    begins: list[int] = []
    position = 0
    for line in lines:
        row = line.content.plain
        found = plain.find(row, position)
        position = found if found >= 0 else position
        begins.append(position)
        position += len(row)
    return begins


def inspected(reply: Reply, token: Token) -> Content:
    """The token's source, its step, what the draft wanted there, and what the step cost."""
    step = reply.steps[token.step]
    part = parts_of(step)[token.part]
    source = source_of(part.source)
    row = styled(_quoted(part.text), source.style) + styled(f" {source.words}", ".value")
    row += styled(f" · step {token.step + 1:,} of {len(reply.steps):,}", ".label")
    drafts = wanted(step)
    if drafts:
        row += styled(" · the draft wanted ", ".label")
        row += Content(" ").join(_draft(draft, here=index == part.position) for index, draft in enumerate(drafts))
    elif not step.drafted:
        row += styled(" · nothing was drafted", ".label")
    if step.drafted:
        row += styled(f" · {step.drafted} drafted, {step.tested} tested, {step.accepted} accepted", ".label")
    times = f" · draft {step.draft_ms:.1f}, verify {step.verify_ms:.1f}, other {step.other_ms:.1f} ms"
    return row + styled(times, ".label")


def _draft(draft: Wanted, *, here: bool) -> Content:
    style = (".value" if here else ".label") if draft.kept else REJECTED.style
    mark = styled("▸" if here else "", ".value")
    chance = EMPTY if draft.probability is None else styled(f" {100 * draft.probability:.0f} %", ".label")
    fate = styled("" if draft.kept else " refused", ".label")
    return mark + styled(_quoted(draft.text), style) + chance + fate


def _quoted(text: str) -> str:
    shown = clean(text).replace("\n", "↵").replace("\t", "⇥")
    return f"“{shown if len(shown) <= _MOST else shown[: _MOST - 1] + '…'}”"
