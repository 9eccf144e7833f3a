"""The strategies as the settings panel lists them: by kind, those that cannot be used with the reason."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from textual.content import Content

from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Group, Strategy
from specchat.tui.text.lines import hang

GROUPS: Mapping[Group, str] = {
    "plain": "nobody",
    "auto": "in turn",
    "model": "a model",
    "heads": "heads",
    "copied": "copies",
    "itself": "itself",
}
"""Who drafts, in the list's order."""
_NARROW = 46
"""Cells below which a row leaves out who drafts, and words that go without saying."""


@dataclass(frozen=True)
class StrategyRow:
    """One strategy that can be chosen, or those of a kind that cannot be for the same reason.

    `first` tells whether it is the first of its kind.
    """

    strategies: tuple[Strategy, ...]
    reason: str
    first: bool

    @property
    def id(self) -> str:
        """The name of its first strategy."""
        return self.strategies[0].name

    def shown(self, chosen: str, lengths: Mapping[str, int], width: int) -> Content:
        """As an option of `width` cells, a reason in several rows; `lengths` are draft lengths of the pair's own."""
        info, narrow = self.strategies[0], width < _NARROW
        kind = Content.styled(f"{GROUPS[info.group] if self.first else '':<9}" * (not narrow), "$quiet")
        if self.reason:
            titles = Content(", ".join(info.title for info in self.strategies))
            why = titles + Content.styled(f": {self.reason}", "$quiet")
            rows = hang(why, max(width, 20), kind + "  ", Content(" " * (kind.cell_length + 2)))
            return Content("\n").join(row.content for row in rows)
        words = f"{'drafts ' * (not narrow)}{lengths.get(info.name, info.draft_length)} tokens a step"
        words = (info.drafts or words) if info.draft_length else "one token a step"
        title = Content.styled(f"{'●' if info.name == chosen else '○'} {info.title:<{14 if narrow else 15}}", "bold")
        return kind + title + Content.styled(words, "$quiet")


def rows(reasons: Mapping[str, str]) -> tuple[StrategyRow, ...]:
    """The list; `reasons` tell by name why strategies cannot be used."""
    return tuple(row for group in GROUPS for row in _of(group, reasons))


def _of(group: Group, reasons: Mapping[str, str]) -> Iterator[StrategyRow]:
    own = [info for info in STRATEGIES.values() if info.group == group]
    split: list[tuple[tuple[Strategy, ...], str]] = [((info,), "") for info in own if info.name not in reasons]
    for reason in dict.fromkeys(reasons[info.name] for info in own if info.name in reasons):
        split.append((tuple(info for info in own if reasons.get(info.name) == reason), reason))
    for index, (strategies, reason) in enumerate(split):
        yield StrategyRow(strategies, reason, index == 0)
