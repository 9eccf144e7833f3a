"""The rows of the list of chats: by date, or what a search found."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from textual.content import Content, Span

from specchat.chat.store import ChatEntry
from specchat.clean import one_line

if TYPE_CHECKING:
    from specchat.chat.search import Hit

QUIET = "$quiet"


@dataclass(frozen=True)
class ListRow:
    """One entry. `key` is None for a heading; `message` leads to a place in the chat."""

    content: Content
    key: str | None = None
    message: str | None = None


def by_date(
    entries: Sequence[ChatEntry], now: datetime, shown: str = "", running: Collection[str] = ()
) -> Iterator[ListRow]:
    """Headings and chats, in the order of `entries`; `shown` is the key of the chat that is open.

    `running` are the keys of those that are being answered.
    """
    heading = ""
    for entry in entries:
        group = "pinned" if entry.pinned else period(datetime.fromtimestamp(entry.updated), now)
        if group != heading:
            heading = group
            yield ListRow(Content.styled(group, QUIET))
        title = Content(one_line(entry.title, 80))
        mark = "● " if entry.key == shown else "… " if entry.key in running else "  "
        yield ListRow(Content.styled(mark, "$accent") + title, entry.key)


def period(then: datetime, now: datetime) -> str:
    """`today`, `yesterday`, `this week` (the last seven days), or month and year."""
    days = (now.date() - then.date()) // timedelta(days=1)
    if days <= 0:
        return "today"
    if days == 1:
        return "yesterday"
    return "this week" if days < 7 else f"{then:%B %Y}"


_BEFORE = 8
"""Characters before what was found that a narrow list shows."""


def _from_match(hit: "Hit") -> tuple[str, list[tuple[int, int]]]:
    """The snippet from shortly before what was found first, so that it is seen in a narrow list too."""
    first = min((start for start, _ in hit.found), default=0)
    cut = hit.snippet.rfind(" ", 0, max(first - _BEFORE, 0)) + 1
    if cut == 0:
        return hit.snippet, list(hit.found)
    return "…" + hit.snippet[cut:], [(start - cut + 1, end - cut + 1) for start, end in hit.found]


def of_hits(hits: Sequence["Hit"]) -> Iterator[ListRow]:
    """A title with the place below it for each find."""
    if not hits:
        yield ListRow(Content.styled("nothing found", QUIET))
    for hit in hits:
        title = Content(hit.title)
        if hit.message is None:
            yield ListRow(title, hit.chat)
            continue
        who = "you: " if hit.role == "user" else ""
        words, found = _from_match(hit)
        spans = [Span(start + len(who), end + len(who), "bold $accent") for start, end in found]
        snippet = Content(who + words, spans).stylize_before(QUIET)
        yield ListRow(title + "\n  " + snippet, hit.chat, hit.message)
