"""The strategies as the settings panel lists them, a line each; those that cannot be used are last, with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.content import Content

from specchat import figures
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Group, Strategy
from specchat.tui.text.lines import hang

_ORDER: Sequence[Group] = ("plain", "auto", "model", "heads", "copied", "itself")
_TITLE = 15
_SPEED = 12
"""Cells at the end of a line for the speed measured here."""


@dataclass(frozen=True)
class StrategyRow:
    """One strategy that can be chosen, or all that cannot be for the same reason."""

    strategies: tuple[Strategy, ...]
    reason: str = ""
    server: str = ""
    """The server that drafts instead."""

    @property
    def title(self) -> str:
        return "Server" if self.server else self.strategies[0].title

    @property
    def summary(self) -> str:
        return f"{self.server} drafts by itself, as it was started." if self.server else self.strategies[0].summary

    @property
    def id(self) -> str:
        """The name of its first strategy."""
        return self.strategies[0].name

    def shown(self, chosen: str, speeds: Mapping[str, float], width: int) -> Content:
        """An option of `width` cells, a reason in several rows; `speeds` are measured tokens a second by name."""
        info = self.strategies[0]
        if self.reason:
            titles = Content(", ".join(info.title for info in self.strategies))
            why = titles + Content.styled(f": {self.reason}", "$quiet")
            return Content("\n").join(row.content for row in hang(why, max(width, 20), Content("  "), Content("  ")))
        title = Content.styled(f"{'●' if info.name == chosen else '○'} {self.title:<{_TITLE}}", "bold")
        measured = f"{figures.per_second(speeds[info.name])} tok/s" if info.name in speeds else ""
        end = measured.rjust(_SPEED) if measured else ""
        room = max(width - title.cell_length - len(end), 0)
        return title + Content.styled(self.summary, "$quiet").truncate(room, ellipsis=True, pad=bool(end)) + end


def rows(reasons: Mapping[str, str], server: str = "") -> tuple[StrategyRow, ...]:
    """The list; `reasons` tell by name why strategies cannot be used. A `server` leaves no choice."""
    known = sorted(STRATEGIES.values(), key=lambda info: _ORDER.index(info.group))
    if server:
        return (StrategyRow((known[0],), server=server),)
    usable = [StrategyRow((info,)) for info in known if info.name not in reasons]
    refused = [info for info in known if info.name in reasons]
    return (
        *usable,
        *(
            StrategyRow(tuple(info for info in refused if reasons[info.name] == reason), reason)
            for reason in dict.fromkeys(reasons[info.name] for info in refused)
        ),
    )
