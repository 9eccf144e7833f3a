"""Numbers as text."""

from collections.abc import Sequence
from math import isinf

EVEN = 0.05
"""Speeds that differ by less are called alike."""
AS_FAST = "as fast"


def per_second(value: float) -> str:
    """Tokens per second: `1,142`, below ten `9.4`."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def per_step(value: float) -> str:
    """Tokens per step: `3.4`, from ten on `12`."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def faster(speedup: float) -> tuple[str, str]:
    """A speed over plain decoding's in plain words: `2.4x faster`, `1.3x slower` or `1.0x as fast`, in two parts."""
    if speedup >= 1 + EVEN:
        return times(speedup), "faster"
    if 0 < speedup <= 1 - EVEN:
        return times(1 / speedup), "slower"
    return times(speedup), AS_FAST


def faster_between(speedup: float, low: float, high: float) -> str:
    """The interval of a speed over plain decoding's, as `faster` turns it: `2.1-3.2x`, or `2.1x or more`."""
    if 0 < speedup <= 1 - EVEN and low > 0:
        low, high = 1 / high, 1 / low
    if isinf(high):
        return f"{times(low)} or more"
    return f"{times(low)[:-1]}-{times(high)}"


def duration(milliseconds: float) -> str:
    """`0.12 s`, `3.4 s`, `14 s`, `2 min 05 s`, `12 min`, `1 h 02 min`; the sign is left out."""
    value = abs(milliseconds) / 1000
    if value < 9.95:
        return f"{value:.2f} s" if value < 0.995 else f"{value:.1f} s"
    if value < 59.5:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 10:
        return f"{minutes} min {rest:02} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def interval(low: float, high: float | None, to: str = "-") -> str:
    """The ends of an interval, `1.21-1.48`; `unsure` where there is no upper one, None or infinite."""
    return "unsure" if high is None or isinf(high) else f"{low:.2f}{to}{high:.2f}"


def times(value: float) -> str:
    """`1.9x`; from ten on `12x`."""
    return f"{value:.1f}x" if value < 9.95 else f"{value:.0f}x"


def memory(size: int) -> str:
    """Bytes as `61 MiB` or `6.4 GiB`."""
    mib = size / 2**20
    return f"{mib:.0f} MiB" if mib < 1000 else f"{mib / 1024:.1f} GiB"


def text_size(texts: Sequence[str]) -> str:
    """The UTF-8 bytes of texts together, as `340 bytes`, `14 kB` or `1.2 MB`."""
    size = sum(len(text.encode(errors="replace")) for text in texts)
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def count(value: int) -> str:
    """`312`, `12,345`."""
    return f"{value:,}"


def of(value: int, word: str) -> str:
    """`1 token`, `12,345 tokens`."""
    return f"{count(value)} {word}{'s' * (value != 1)}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"
