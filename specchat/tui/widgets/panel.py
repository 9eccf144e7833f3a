"""The engine panel: what drafting does for the reply, in numbers and bars."""

from collections.abc import Iterable
from typing import ClassVar

from textual.content import Content

from specchat.tui import figures
from specchat.tui.actions.action import key_name
from specchat.tui.actions.table import BY_ID
from specchat.tui.gauges import Gauges
from specchat.tui.text.digits import big
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.widgets.plain import Plain

WIDTH = 32
"""Cells of text in a row of the panel."""

ADVICE_KEY = key_name(BY_ID["advice"].keys[0])

_CHART_TALL, _CHART_LOW = 4, 2

Row = Content


def panel_rows(shown: Gauges, height: int) -> list[Row]:
    """The panel's rows. Where `height` is short the charts get lower and the gaps go; then the end is left out."""
    parts: list[list[Row]] = [
        [styled("accepted per step", ".label"), *_number_and_sparkline(shown)],
        [*_histogram(shown, _CHART_TALL if height >= 26 else _CHART_LOW)],
        [*_speed(shown)],
        [*_facts(shown)],
        [*_diagnosis(shown)],
    ]
    spaced = [row for part in parts if part for row in (*part, EMPTY)][:-1]
    return spaced if len(spaced) <= height else [row for part in parts for row in part][:height]


def _diagnosis(shown: Gauges) -> Iterable[Row]:
    diagnosis = shown.diagnosis
    if diagnosis.words:
        style = ".good" if diagnosis.pays else ".bad" if diagnosis.pays is False else ".label"
        yield from styled(diagnosis.words, style).wrap(WIDTH)
    if diagnosis.advice:
        yield from styled(f"{ADVICE_KEY} {diagnosis.advice.words}", ".key").wrap(WIDTH)
    if shown.saved_ms is not None:
        lost = shown.saved_ms < 0
        words = f"{'lost' if lost else 'saved'} {figures.duration(shown.saved_ms)} this session"
        yield styled(words, ".bad" if lost else ".label")


def _number_and_sparkline(shown: Gauges) -> Iterable[Row]:
    value = shown.accepted_per_step
    number = big("–" if value is None else f"{value:.1f}" if value < 9.95 else f"{value:.0f}")
    room = WIDTH - 11
    spark = figures.columns(shown.recent, max(shown.longest, 1), room, 3) if shown.recent else [" " * room] * 3
    for digits, columns in zip(number, spark, strict=True):
        yield styled(digits.ljust(11), ".big") + styled(columns, ".spark")


def _histogram(shown: Gauges, height: int) -> Iterable[Row]:
    lengths = max(shown.longest, 5) + 1
    cell = 4 if lengths <= 8 else 3 if lengths <= 10 else 2
    counts = [*shown.histogram, *[0] * lengths][:lengths]
    most = max(counts)
    yield styled("steps by tokens accepted", ".label")
    for row in (
        figures.columns(counts, most, lengths, height) if most else [" " * lengths] * (height - 1) + ["▁" * lengths]
    ):
        yield styled("".join((char * (cell - 1)).ljust(cell) for char in row), ".spark")
    wide = cell > 2
    labels = [str(i) if wide or i % 2 == 0 else "" for i in range(lengths)]
    yield styled("".join(label.center(cell - 1).ljust(cell) for label in labels).rstrip(), ".label")


def _speed(shown: Gauges) -> Iterable[Row]:
    speed = "–" if shown.tokens_per_second is None else figures.per_second(shown.tokens_per_second)
    left = styled(speed, ".value") + styled(" tok/s", ".label")
    if shown.speedup is None:
        yield left
    else:
        style = ".good" if shown.speedup >= 1.02 else ".bad" if shown.speedup < 0.98 else ".value"
        right = styled(figures.times(shown.speedup), style) + styled(" plain", ".label")
        yield left.pad_right(max(WIDTH - left.cell_length - right.cell_length, 1)) + right
    yield from _split(shown)


def _split(shown: Gauges) -> Iterable[Row]:
    parts = (("draft", shown.draft_ms), ("verify", shown.verify_ms), ("other", shown.other_ms))
    total = sum(ms for _, ms in parts)
    if not total:
        yield styled("─" * WIDTH, ".track")
        yield styled("draft –   verify –   other –", ".label")
        return
    ends = [round(WIDTH * sum(ms for _, ms in parts[: i + 1]) / total) for i in range(3)]
    starts = [0, *ends]
    bar = EMPTY
    for (name, _), glyph, start, end in zip(parts, "━─┄", starts, ends, strict=False):
        bar += styled(glyph * (end - start), f".split-{name}")
    yield bar
    texts = [f"{name} {100 * ms / total:.0f}%" for name, ms in parts]
    yield styled("  ".join(texts), ".label")


def _facts(shown: Gauges) -> Iterable[Row]:
    yield _fact("first token", "–" if shown.first_token_ms is None else figures.seconds(shown.first_token_ms))
    rate, length = shown.acceptance_rate, shown.acceptance_length
    yield _fact("drafts kept", "–" if rate is None else figures.percent(rate, 1))
    yield _fact("tokens per verify", "–" if length is None else f"AL {length:.1f}")
    yield _fact("memory", figures.memory(shown.memory) if shown.memory else "–")
    if shown.context:
        yield _fact("context", f"{figures.count(shown.context_used)} / {figures.count(shown.context)}")
        filled, rest = figures.bar(shown.context_used / shown.context, WIDTH)
        full = shown.context_used > 0.9 * shown.context
        yield styled(filled, ".bad" if full else ".spark") + styled(rest, ".track")


def _fact(label: str, value: str) -> Row:
    return styled(label.ljust(WIDTH - len(value)), ".label") + styled(value, ".value")


def one_row(shown: Gauges, width: int) -> Content:
    """The panel folded into one row, for narrow screens."""
    accepted = "–" if shown.accepted_per_step is None else f"{shown.accepted_per_step:.1f}"
    speed = "–" if shown.tokens_per_second is None else figures.per_second(shown.tokens_per_second)
    row = styled(accepted, ".value") + styled(" accepted per step ", ".label")
    advice = shown.diagnosis.advice
    if shown.recent and width >= (90 if advice else 70):
        row += styled(figures.columns(shown.recent[-12:], max(shown.longest, 1), 12, 1)[0] + " ", ".spark")
    row += styled("· ", ".label") + styled(speed, ".value") + styled(" tok/s", ".label")
    if shown.speedup is not None:
        style = ".good" if shown.speedup >= 1.02 else ".bad" if shown.speedup < 0.98 else ".value"
        row += styled(" · ", ".label") + styled(figures.times(shown.speedup), style) + styled(" plain", ".label")
    if advice:
        room = width - row.cell_length - len(f" · {ADVICE_KEY} ")
        words = advice.words if len(advice.words) <= room else advice.label
        row += styled(" · ", ".label") + styled(f"{ADVICE_KEY} {words}", ".key")
    if shown.context and width - row.cell_length > 24:
        row += styled(f" · context {figures.count(shown.context_used)}/{figures.count(shown.context)}", ".label")
    return row.truncate(width, ellipsis=True)


class EnginePanel(Plain):
    """The gauges at full size."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "label", "value", "big", "spark", "track", "good", "bad", "key", "split-draft", "split-verify", "split-other",
    }  # fmt: skip

    def show_gauges(self, shown: Gauges) -> None:
        rows = panel_rows(shown, max(self.content_size.height, 1))
        self.show(Content("\n").join(rows))


class EngineLine(Plain):
    """The gauges in one row."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"label", "value", "spark", "good", "bad", "key"}

    def show_gauges(self, shown: Gauges) -> None:
        self.show(one_row(shown, max(self.content_size.width, 10)))
