"""Letters for what is in view: messages, code blocks and links."""

from itertools import product
from typing import Literal

from textual.content import Content
from textual.style import Style

from specchat.clean import is_web_link
from specchat.dataclass import dataclass
from specchat.tui.text.chat_rows import ChatRows

_LETTERS = "asdfghjklqwertyuiopzxcvbnm"


@dataclass(frozen=True)
class JumpTarget:
    """Something to jump to. `text` is the code, or where the link leads."""

    kind: Literal["message", "code", "link"]
    row: int
    column: int = 0
    text: str = ""


def targets(chat: ChatRows, top: int, height: int) -> list[JumpTarget]:
    """The targets in rows `top` to `top + height`, from above."""
    found: list[JumpTarget] = []
    rows = chat.rows
    for row in range(top, min(top + height, len(rows))):
        line = rows[row][0]
        above = chat.said_at(row - 1) if row else None
        begins = chat.said_at(row) != above
        if (begins and line.content) or (row and _blank_head(chat, row - 1)):
            found.append(JumpTarget("message", row))
        if line.code is not None and (row == 0 or rows[row - 1][0].code is not line.code):
            found.append(JumpTarget("code", row, 0, line.code.text))
        for column, url in links_in(line.content):
            if not any(other.text == url and other.row >= row - 1 for other in found if other.kind == "link"):
                found.append(JumpTarget("link", row, column, url))
    return found


def _blank_head(chat: ChatRows, row: int) -> bool:
    """True if `row` is the empty one that begins a message."""
    return not chat.rows[row][0].content and (row == 0 or chat.said_at(row) != chat.said_at(row - 1))


def links_in(content: Content) -> list[tuple[int, str]]:
    """Start and address of each web link in a row."""
    return [
        (span.start, url)
        for span in content.spans
        if isinstance(span.style, Style) and isinstance(url := span.style.meta.get("href"), str) and is_web_link(url)
    ]


def labels(count: int) -> list[str]:
    """`count` labels, none the beginning of another; fewer where letters run out."""
    if count <= len(_LETTERS):
        return list(_LETTERS[:count])
    return ["".join(pair) for pair in product(_LETTERS, repeat=2)][:count]


def overlaid(content: Content, column: int, label: str, style: Style) -> Content:
    """`label` drawn over `content` from character `column` on, what is right of it staying in its cell."""
    chip = Content.styled(f"{label} ", style)
    end = column
    while end < len(content) and content[column:end].cell_length < chip.cell_length:
        end += 1
    space = max(content[column:end].cell_length - chip.cell_length, 0)
    return content[:column] + chip + " " * space + content[end:]
