"""The rows of the list of chats: by date, or what a search found."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual.content import Content, Span

from specchat.chat.rows import ChatEntry
from specchat.chat.tags import shown_tags
from specchat.clean import one_line
from specchat.dataclass import dataclass

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
    entries: Sequence[ChatEntry], now: datetime, width: int, shown: str = "", running: Collection[str] = ()
) -> Iterator[ListRow]:
    """Headings and chats, in the order of `entries`, at `width` cells; `shown` is the key of the chat that is open.

    `running` are the keys of those that are being answered.
    """
    heading = ""
    for entry in entries:
        group = "pinned" if entry.pinned else period(datetime.fromtimestamp(entry.updated), now)
        if group != heading:
            heading = group
            yield ListRow(Content.styled(group, QUIET))
        mark = "● " if entry.key == shown else "… " if entry.key in running else "  "
        head = _headed(mark, one_line(entry.title, 80), entry.updated, now, width)
        below = " · ".join(filter(None, (shown_tags(entry.tags), entry.preview)))
        if not below:
            yield ListRow(head, entry.key)
            continue
        preview = fitted(f"  {below}", width)
        at = len(head.plain) + 1
        yield ListRow(Content(f"{head.plain}\n{preview}", [*head.spans, Span(at, at + len(preview), QUIET)]), entry.key)


def _headed(mark: str, title: str, updated: float, now: datetime, width: int) -> Content:
    """The first line of a chat: its title as far as there is room, and when it was written in last."""
    time = clock_time(datetime.fromtimestamp(updated), now)
    line = set_cell_size(fitted(mark + title, max(width - len(time) - 1, 10)), max(width - len(time), 11))
    return Content(line + time, [Span(0, len(mark), "$accent"), Span(len(line), len(line) + len(time), QUIET)])


def fitted(text: str, width: int) -> str:
    """`text` in at most `width` cells. Of thousands of rows `Content.truncate` takes seconds."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def clock_time(then: datetime, now: datetime) -> str:
    """`14:05`, in the last seven days `Tue`, in the same year `3 Nov`, else `Nov 2025`."""
    days = (now.date() - then.date()) // timedelta(days=1)
    if days <= 0:
        return f"{then:%H:%M}"
    if days < 7:
        return f"{then:%a}"
    return f"{then.day} {then:%b}" if then.year == now.year else f"{then:%b %Y}"


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


def of_hits(hits: Sequence["Hit"], now: datetime, width: int) -> Iterator[ListRow]:
    """Each chat that was found once, with the best place in it below its title, and how many more there are."""
    if not hits:
        yield ListRow(Content.styled("nothing found", QUIET))
    for key in dict.fromkeys(hit.chat for hit in hits):
        own = [hit for hit in hits if hit.chat == key]
        places = [hit for hit in own if hit.message is not None]
        head = _headed("  ", own[0].title, own[0].updated, now, width)
        if not places:
            yield ListRow(head, key)
            continue
        who = "  you: " if places[0].role == "user" else "  "
        words, found = _from_match(places[0])
        spans = [Span(start + len(who), end + len(who), "bold $accent") for start, end in found]
        more = f" +{len(places) - 1} more" if len(places) > 1 else ""
        snippet = Content(who + words, spans).stylize_before(QUIET).truncate(width - len(more), ellipsis=True)
        yield ListRow(head + "\n" + snippet + Content.styled(more, QUIET), key, places[0].message)
