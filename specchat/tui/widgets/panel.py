"""The engine panel: how much faster the reply is written, and why, in numbers and bars."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.geometry import Size

from specchat import figures
from specchat.tui.keys import Keys
from specchat.tui.text.bars import bar, big, columns
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.widgets.plain import Plain

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.insight.gauges import Gauges

WIDTH = 32
"""Cells of text in a row of the panel."""

_NUMBER = 5
"""Cells of the number beside the sparkline."""
_CHART = 3
"""Rows of the histogram."""

_BUSY = 0.05
"""Least share of the time that a wait for other programs is shown at."""

Row = Content


def panel_rows(shown: "Gauges", height: int, advice_key: str) -> list[Row]:
    """The panel's rows, what matters most first. Where `height` is short, parts are left out from the end."""
    parts = (_speed, _accepted, partial(_diagnosis, key=advice_key), _facts, _split, _histogram)
    rows: list[Row] = []
    for part in parts:
        added = list(part(shown))
        if added and len(rows) + len(added) + bool(rows) <= height:
            rows += [EMPTY, *added] if rows else added
    return rows


def _speed(shown: "Gauges") -> Iterable[Row]:
    """The largest figure: times plain decoding, or tokens per second where plain decoding was not measured."""
    speed = "–" if shown.speed.tokens_per_second is None else figures.per_second(shown.speed.tokens_per_second)
    if shown.speed.speedup is None:
        yield from _large(speed, ".big", " tok/s")
        if shown.speed.measuring:
            yield styled("measuring the time saved", ".label")
        return
    number, words = figures.faster(shown.speed.speedup)
    yield from _large(number[:-1], ".slow" if shown.speed.slower else ".big", f"x {words}")
    comparison = (
        f"{'as' if words == figures.AS_FAST else 'than'} without{', lately' if shown.speed.lately else ' drafts'}"
    )
    yield _ends(styled(comparison, ".label"), f"{speed} tok/s")
    if shown.speed.interval is not None:
        yield styled(f"95 % sure: {figures.faster_between(shown.speed.speedup, *shown.speed.interval)}", ".label")


def _large(number: str, style: str, words: str) -> Iterable[Row]:
    *upper, last = big(number)
    yield from (styled(row, style) for row in upper)
    yield styled(last, style) + styled(words, style)


def _ends(left: Content, right: str) -> Row:
    return left.pad_right(max(WIDTH - left.cell_length - len(right), 1)) + styled(right, ".value")


def _accepted(shown: "Gauges") -> Iterable[Row]:
    yield styled("tokens per step", ".label")
    accepted = shown.acceptance
    value = "–" if accepted.length is None else figures.per_step(accepted.length)
    room = WIDTH - _NUMBER
    spark = columns(accepted.recent, max(accepted.longest, 1), room, 2) if accepted.recent else [" " * room] * 2
    for number, cells in zip(("", value), spark, strict=True):
        yield styled(number.ljust(_NUMBER), ".value") + styled(cells, ".spark")


def _diagnosis(shown: "Gauges", key: str) -> Iterable[Row]:
    diagnosis = shown.diagnosis
    if diagnosis.words:
        yield from styled(diagnosis.words, ".label").wrap(WIDTH)
    if diagnosis.advice:
        yield from styled(f"{key}: {diagnosis.advice.words}", ".key").wrap(WIDTH)
    if shown.gpu.trouble:
        yield from styled(shown.gpu.trouble, ".slow").wrap(WIDTH)


def _facts(shown: "Gauges") -> Iterable[Row]:
    yield _fact("first token", "–" if shown.first_token_ms is None else figures.duration(shown.first_token_ms))
    rate = shown.acceptance.rate
    yield _fact("drafts accepted", "–" if rate is None else figures.percent(rate, 1))
    if shown.saved_ms is not None:
        lost = round(shown.saved_ms / 10) < 0
        yield _fact("lost so far" if lost else "saved so far", figures.duration(shown.saved_ms))
    yield _fact("memory", figures.memory(shown.memory) if shown.memory else "–")
    if shown.gpu.words:
        yield _fact("GPU", shown.gpu.words)
    if shown.context:
        yield _fact("context", f"{figures.count(shown.context_used)} / {figures.count(shown.context)}")
        filled, rest = bar(shown.context_used / shown.context, WIDTH)
        full = shown.context_used > 0.9 * shown.context
        yield styled(filled, ".slow" if full else ".spark") + styled(rest, ".track")


def _fact(label: str, value: str) -> Row:
    return _ends(styled(label, ".label"), value)


def _split(shown: "Gauges") -> Iterable[Row]:
    parts = (("draft", shown.times.draft), ("verify", shown.times.verify), ("other", shown.times.other))
    total = sum(ms for _, ms in parts)
    if not total:
        return
    ends = [round(WIDTH * sum(ms for _, ms in parts[: i + 1]) / total) for i in range(3)]
    bar = EMPTY
    for (name, _), glyph, start, end in zip(parts, "━─┄", [0, *ends], ends, strict=False):
        bar += styled(glyph * (end - start), f".split-{name}")
    yield styled("where the time went", ".label")
    yield bar
    yield styled("  ".join(f"{name} {100 * ms / total:.0f}%" for name, ms in parts), ".label")
    waited = shown.times.waited / (total + shown.times.waited)
    if waited >= _BUSY:
        yield styled(f"waited for other programs {100 * waited:.0f}%", ".slow")


def _histogram(shown: "Gauges") -> Iterable[Row]:
    lengths = max(shown.acceptance.longest, 5) + 1
    cell = 4 if lengths <= 8 else 3 if lengths <= 10 else 2
    counts = [*shown.acceptance.histogram, *[0] * lengths][:lengths]
    most = max(counts)
    if not most:
        return
    yield styled("steps by tokens accepted", ".label")
    for row in columns(counts, most, lengths, _CHART):
        yield styled("".join((char * (cell - 1)).ljust(cell) for char in row), ".spark")
    wide = cell > 2
    labels = [str(i) if wide or i % 2 == 0 else "" for i in range(lengths)]
    yield styled("".join(label.center(cell - 1).ljust(cell) for label in labels).rstrip(), ".label")


def one_row(shown: "Gauges", width: int, advice_key: str) -> Content:
    """The panel folded into one row, for narrow screens."""
    speed = "–" if shown.speed.tokens_per_second is None else figures.per_second(shown.speed.tokens_per_second)
    row = styled(speed, ".value") + styled(" tok/s", ".label")
    if shown.speed.speedup is not None:
        number, words = figures.faster(shown.speed.speedup)
        faster = f"{words} as plain" if words == figures.AS_FAST else f"{number} {words}"
        sure = (
            f" ({figures.faster_between(shown.speed.speedup, *shown.speed.interval)})"
            if shown.speed.interval is not None
            else ""
        )
        lately = styled(f"{' lately' if shown.speed.lately else ''}{sure} · ", ".label")
        row = styled(faster, ".slow" if shown.speed.slower else ".big") + lately + row
    elif shown.speed.measuring:
        row += styled(" · measuring", ".label")
    advice = shown.diagnosis.advice
    filled = f"{figures.count(shown.context_used)} / {figures.count(shown.context)}"
    context = f" · context {filled}" if shown.context else ""
    if shown.acceptance.length is not None:
        row += styled(" · ", ".label") + styled(figures.per_step(shown.acceptance.length), ".value")
        row += styled(" a step", ".label")
        spark = 13 + (0 if advice else len(context))
        if shown.acceptance.recent and width >= (90 if advice else 60) and row.cell_length + spark <= width:
            row += " " + styled(
                columns(shown.acceptance.recent[-12:], max(shown.acceptance.longest, 1), 12, 1)[0], ".spark"
            )
    if advice:
        room = width - row.cell_length - len(f" · {advice_key}: ")
        words = advice.words if len(advice.words) <= room else advice.deed
        row += styled(" · ", ".label") + styled(f"{advice_key}: {words}", ".key")
    if row.cell_length + len(context) <= width:
        row += styled(context, ".label")
    return row.truncate(width, ellipsis=True)


class _Gauges(Plain):
    """Draws gauges anew when its size changes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"label", "value", "big", "slow", "spark", "track", "key"}

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._shown: Gauges | None = None
        self._advice_key = keys.named("advice")

    def show_gauges(self, shown: "Gauges") -> None:
        self._shown = shown
        if self.content_size:
            self.show(self._drawn(shown, self.content_size))

    def on_resize(self) -> None:
        if self._shown is not None:
            self.show_gauges(self._shown)

    def _drawn(self, shown: "Gauges", size: Size) -> Content:
        raise NotImplementedError


class EnginePanel(_Gauges):
    """The gauges at full size."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"split-draft", "split-verify", "split-other"}
    OUTER: ClassVar = WIDTH + 3
    """Cells with padding and border."""

    def __init__(self, keys: Keys) -> None:
        super().__init__(keys)
        self.styles.width = self.OUTER

    def _drawn(self, shown: "Gauges", size: Size) -> Content:
        return Content("\n").join(panel_rows(shown, size.height, self._advice_key))


class EngineLine(_Gauges):
    """The gauges in one row."""

    def _drawn(self, shown: "Gauges", size: Size) -> Content:
        return one_row(shown, size.width, self._advice_key)
