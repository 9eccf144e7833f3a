"""Projected speed of a reply at other draft lengths."""

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat import figures
from specchat.engine.strategies import STRATEGIES
from specchat.insight.projection import LengthOutlook, Projection
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.bars import level
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import Plain

_WIDE, _MIDDLE = 72, 50
"""Cells of the window from which all columns fit, and all but the acceptance length."""


class WhatIfScreen(Dialog[int | None]):
    """Gives the length chosen, 0 for plain decoding, None when closed."""

    CSS_PATH = "what_if.tcss"
    DIALOG_TITLE = "what if"
    DIALOG_HINT = "enter uses a length · esc closes"

    def __init__(self, projection: Projection, in_use: int | None) -> None:
        """`in_use` is the length that is set; None where another strategy is."""
        super().__init__()
        self._projection = projection
        self._in_use = in_use

    def compose_content(self) -> ComposeResult:
        yield Plain(source_words(self._projection))
        yield Plain(_head(self.app.size.width), classes="head")
        yield Options(*[Option(self._row(outlook)) for outlook in self._projection.outlooks], markup=False)
        yield Plain(basis_words(self._projection))

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.highlighted = self._projection.best.length if self._in_use is None else self._in_use
        options.focus()

    def _row(self, outlook: LengthOutlook) -> Content:
        """`      x5   142    1.9x     3.4 ████████▌  best, in use`; ~ before what is extrapolated."""
        best, width = self._projection.best, self.app.size.width
        is_best = outlook is best and not self._projection.beaten
        beyond = "~" if outlook.basis == "extrapolated" else " "
        name = f"x{outlook.length}" if outlook.length else "plain"
        times = "–" if outlook.times is None else figures.times(outlook.times)
        row = Content.styled(
            f"{beyond}{name:>7} {figures.per_second(outlook.tokens_per_second):>5} {times:>7} ",
            "bold" if is_best else "",
        )
        if width >= _WIDE:
            row += Content.styled(f"{outlook.tokens_per_step:>7.1f} ", "$quiet")
        if width >= _MIDDLE:
            share = outlook.tokens_per_second / best.tokens_per_second if best.tokens_per_second else 0.0
            row += Content.styled(level(share, 20 if width >= _WIDE else 10) + " ", "$accent")
        words = [
            "best" if is_best else "",
            "in use" if outlook.length == self._in_use else "",
            "measured" if outlook.basis == "measured" else "",
        ]
        return row + Content.styled(", ".join(word for word in words if word), "bold" if is_best else "$quiet")

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)


def _head(width: int) -> str:
    """Names above the columns."""
    return f"{'drafted':>8} tok/s x plain " + f"{'a step':>7} " * (width >= _WIDE)


def source_words(projection: Projection) -> str:
    title = STRATEGIES[projection.strategy].title if projection.strategy in STRATEGIES else projection.strategy
    words = (
        "How fast this reply would have been with more or fewer tokens drafted a step: a projection from its "
        f"{projection.steps:,} steps with {title}."
    )
    if projection.beaten:
        speed = figures.per_second(projection.measured)
        words += f" The reply itself ran at {speed}, faster than any of these: more than one strategy drafted."
    return words


def basis_words(projection: Projection) -> str:
    """The measured part of it."""
    low, high = projection.rows[0], projection.rows[-1]
    rows = f"{low}" if low == high else f"{low} to {high}"
    one = "1 (plain) and " if projection.one_row_from_plain else ""
    return (
        f"Measured: drafting, verifying {one}{rows} tokens at once, and what was accepted up to x{projection.longest}. "
        "~ goes on from there in a straight line."
    )
