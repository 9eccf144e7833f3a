"""The token under the cursor of the token view: where it is, and what is known of the step that wrote it."""

from collections.abc import Sequence

from textual.content import Content

from specchat.chat.sources import source_of
from specchat.chat.turn import Reply
from specchat.engine.protocol.step_tree import branched
from specchat.engine.strategies import SERVER
from specchat.tui.text.draft_rows import chain_row, quoted, tree_rows
from specchat.tui.text.lines import TextLine, styled
from specchat.tui.text.tokens import Token, TokenSection

WAITED_MS = 0.05
"""Milliseconds of a step; shorter waits are not shown."""
_CANDIDATES = 2
"""Rows kept for the candidates of a tree where there is little room."""


def cells_of(section: TokenSection, token: Token, lines: Sequence[TextLine]) -> list[tuple[int, int, int]]:
    """The rows of `section` that show `token`, with the characters from and up to which they do."""
    cells: list[tuple[int, int, int]] = []
    for row, (line, begin) in enumerate(zip(lines, _begins(section.plain, lines), strict=True)):
        low, high = max(token.start - begin, 0), min(token.end - begin, len(line.content))
        if low < high:
            cells.append((row, low, high))
    return cells


def token_at(section: TokenSection, row: int, lines: Sequence[TextLine], column: int = 0) -> Token | None:
    """The token shown in row `row` at `column` or after it, else the nearest one before."""
    begins = _begins(section.plain, lines)
    at = begins[row] + column if row < len(begins) else 0
    after = next((token for token in section.tokens if token.end > at), None)
    return after or (section.tokens[-1] if section.tokens else None)


def _begins(plain: str, lines: Sequence[TextLine]) -> list[int]:
    """Start of each row in `plain`: wrapping leaves out spaces between rows."""
    begins: list[int] = []
    position = 0
    for line in lines:
        row = line.content.plain
        found = plain.find(row, position)
        position = found if found >= 0 else position
        begins.append(position)
        position += len(row)
    return begins


def inspected(reply: Reply, token: Token, width: int, height: int) -> Content:
    """The token's source, its step, what was drafted there, and what the step cost.

    The candidates of a tree have rows of their own, as many as fit below the others in `height` rows of `width` cells.
    """
    step = reply.steps[token.step]
    piece = step.pieces[token.piece]
    source = source_of(piece.source)
    tree = branched(step.drafts)
    row = styled(quoted(piece.text), source.style) + styled(f" {source.words}", ".value")
    row += styled(f" · step {token.step + 1:,} of {len(reply.steps):,}", ".label")
    if step.drafts and not tree:
        row += styled(" · drafted here: ", ".label") + chain_row(step, piece.position)
    elif not step.drafted:
        row += styled(" · nothing was drafted", ".label")
    if step.drafted:
        places = " places" if tree else ""
        row += styled(f" · {step.drafted} drafted, {step.tested}{places} tested, {step.accepted} accepted", ".label")
    waited = f", waited {step.waited_ms:.1f}" if step.waited_ms >= WAITED_MS else ""
    if step.strategy == SERVER:
        times = f" · {step.verify_ms:.1f} ms on the server"
    else:
        times = f" · draft {step.draft_ms:.1f}, verify {step.verify_ms:.1f}, other {step.other_ms:.1f}{waited} ms"
    row += styled(times, ".label")
    if not tree or not width:
        return row
    head = row.wrap(width)[: max(height - _CANDIDATES, 1)]
    behind = None if piece.position is None else piece.position - 1
    rows = tree_rows(step, height - len(head), behind)
    return Content("\n").join([*head, *(one.truncate(width, ellipsis=True) for one in rows)])
