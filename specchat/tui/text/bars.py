"""Bars of fixed width, and numbers three rows tall."""

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LEFT_EIGHTHS = " ▏▎▍▌▋▊▉█"
_DIGITS = (
    "┏━┓╺┓ ╺━┓╺━┓╻ ╻┏━╸┏━╸╺━┓┏━┓┏━┓",
    "┃ ┃ ┃ ┏━┛ ━┫┗━┫┗━┓┣━┓  ┃┣━┫┗━┫",
    "┗━┛╺┻╸┗━╸╺━┛  ╹╺━┛┗━┛  ╹┗━┛╺━┛",
)
_OTHER = {".": (" ", " ", "•"), ",": ("", "", "")}


def bar(fraction: float, width: int) -> tuple[str, str]:
    """A bar of `width` cells as its filled and its empty part."""
    filled = round(max(0.0, min(fraction, 1.0)) * width)
    if fraction > 0 and not filled:
        filled = 1
    return "━" * filled, "─" * (width - filled)


def level(fraction: float, width: int) -> str:
    """A bar growing in eighths of a cell, padded to `width`; something above nothing shows at least an eighth."""
    eighths = round(max(0.0, min(fraction, 1.0)) * width * 8)
    if fraction > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_LEFT_EIGHTHS[rest] if rest else "")).ljust(width)


def columns(values: Sequence[float], highest: float, width: int, height: int) -> list[str]:
    """The last `width` values as columns `height` rows tall, the newest at the right; zero shows as a floor mark."""
    shown = [max(0.0, min(value / highest, 1.0)) if highest else 0.0 for value in values[-width:]]
    rows = []
    for row in reversed(range(height)):
        cells = []
        for value in shown:
            eighths = round(value * height * 8) - row * 8
            if row == 0:
                eighths = max(eighths, 1)
            cells.append(_EIGHTHS[max(0, min(eighths, 8))])
        rows.append("".join(cells).rjust(width))
    return rows


def big(text: str) -> tuple[str, str, str]:
    """Digits and points as three rows, commas left out, other characters as a dash."""
    rows = ["", "", ""]
    for char in text:
        for index, font in enumerate(_DIGITS):
            if char.isdigit():
                rows[index] += font[int(char) * 3 : int(char) * 3 + 3]
            elif char in _OTHER:
                rows[index] += _OTHER[char][index]
            else:
                rows[index] += ("   ", "╺━╸", "   ")[index]
    return rows[0], rows[1], rows[2]
