"""The time that drafting saved since the app was started."""

from textual.content import Content

from specchat import figures
from specchat.engine.strategies import STRATEGIES
from specchat.insight.ledger import Account, Ledger
from specchat.tui.screens.text_dialog import TextDialog
from specchat.tui.text.lines import EMPTY, styled

_NAME = 13
_COLUMNS = (("replies", 8), ("tokens", 9), ("took", 10), ("plain", 10), ("saved", 10), ("times", 6))
_NARROW = ("took", "saved", "times")
_ABOUT = (
    "took: measured decoding, without reading prompts. plain: what the same tokens take at the plain speed measured "
    "for the pair. saved: the difference, negative where drafting cost time."
)
_ABOUT_NARROW = (
    "took: measured decoding, without reading prompts. saved: against what the same tokens take at the plain speed "
    "measured for the pair, negative where drafting cost time."
)


class LedgerScreen(TextDialog):
    DIALOG_TITLE = "saved this session"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def rows(self, width: int) -> list[Content]:
        return ledger_rows(self._ledger, width)


def ledger_rows(ledger: Ledger, width: int) -> list[Content]:
    """A row for each strategy and one for all of them; fewer columns where `width` is short."""
    if not ledger.replies:
        return styled("no reply has ended yet", ".quiet").wrap(width)
    wide = width >= 66
    columns = [(name, size) for name, size in _COLUMNS if wide or name in _NARROW]
    head = "".ljust(_NAME) + "".join(name.rjust(size) for name, size in columns)
    rows = [styled(head, ".head")]
    for name, account in ledger.by_strategy().items():
        rows.append(_row(STRATEGIES[name].title if name in STRATEGIES else name, account, columns))
    rows += [
        _row("all", ledger.total, columns),
        EMPTY,
        *styled(_ABOUT if wide else _ABOUT_NARROW, ".quiet").wrap(width),
    ]
    return rows


def _row(name: str, account: Account, columns: list[tuple[str, int]]) -> Content:
    known = account.times is not None
    values = {
        "replies": figures.count(account.replies),
        "tokens": figures.count(account.tokens),
        "took": figures.duration(account.milliseconds),
        "plain": figures.duration(account.plain_ms) if known else "–",
        "saved": f"{'-' * (round(account.saved_ms / 10) < 0)}{figures.duration(account.saved_ms)}" if known else "–",
        "times": f"{account.times:.2f}x" if account.times is not None else "–",
    }
    style = (
        ".good" if account.times and account.times >= 1.02 else ".bad" if account.times and account.times < 1 else ""
    )
    row = styled(name[:_NAME].ljust(_NAME), ".head" if name == "all" else "")
    for column, size in columns:
        row += styled(values[column].rjust(size), style if column in ("saved", "times") else "")
    return row
