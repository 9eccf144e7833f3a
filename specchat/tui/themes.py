"""A theme file's colours as a Textual theme, and colours between them: quiet text, rules, the band behind a prompt.

Those are mixed to be clear enough to be seen. Contrast is WCAG 2's: (lighter + 0.05) / (darker + 0.05) of the
relative luminances.
"""

from collections.abc import Mapping, Sequence

from textual import theme as textual
from textual.color import Color

from specchat.config.themes import Theme

DEFAULT_THEME = "ink"

SPEC_DEFAULTS: dict[str, str] = {
    "spec-draft": "#8fc38a",
    "spec-lookup": "#c7a0e0",
    "spec-swift": "#7fa8ec",
    "spec-target": "#e8a87c",
    "spec-bonus": "#6cb6c9",
    "spec-plain": "#d5dbe3",
    "spec-rejected": "#8a929e",
}
"""Colours of token sources for themes that name none."""

TEXT, RULE = 4.5, 1.6
"""The least contrast of text, and of rules and boxes, with what they stand on."""

_GROUNDS = ("background", "surface", "panel")
_MARGIN = 1.04
"""Colours are rounded to whole steps."""
_BAND = 0.13
"""Share of the accent in the band behind a prompt."""


def textual_theme(theme: Theme) -> textual.Theme:
    """Textual's own kind of theme; colours that the file leaves out are derived by Textual."""
    colours = theme.colors.get
    palette = textual.BUILTIN_THEMES["ansi-dark" if theme.dark else "ansi-light"].variables if theme.ansi else {}
    return textual.Theme(
        name=theme.name,
        dark=theme.dark,
        primary=theme.colors["primary"],
        secondary=colours("secondary"),
        accent=colours("accent"),
        foreground=colours("foreground"),
        background=colours("background"),
        surface=colours("surface"),
        panel=colours("panel"),
        warning=colours("warning"),
        error=colours("error"),
        success=colours("success"),
        variables={**palette, **{f"spec-{source}": colour for source, colour in theme.spec.items()}},
        ansi=theme.ansi,
    )


def contrast(one: Color, other: Color) -> float:
    """From 1, alike, to 21, black on white."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _faintest(colour: Color, grounds: Sequence[Color], least: float) -> Color:
    """The faintest `colour` over the first ground that is clear on all of them; `colour` itself where none is."""
    for share in range(10, 100, 2):
        mixed = grounds[0].blend(colour, share / 100)
        if all(contrast(mixed, ground) >= least * _MARGIN for ground in grounds):
            return mixed
    return colour


def shades(theme: Mapping[str, str]) -> dict[str, str]:
    """`quiet`, `rule`, `band` and the scrollbars' colours for the variables of a theme.

    Of the terminal's own colours nothing can be mixed.
    """
    foreground, accent = Color.parse(theme["foreground"]), Color.parse(theme["accent"])
    grounds = [Color.parse(theme[name]) for name in _GROUNDS]
    quiet, rule, band = theme["foreground"], theme["foreground"], theme["background"]
    if all(colour.ansi is None for colour in (foreground, accent, *grounds)):
        quiet, rule = (_faintest(foreground, grounds, contrast).hex for contrast in (TEXT, RULE))
        band = grounds[0].blend(accent, _BAND).hex
    bars = {"": rule, "-hover": f"{theme['accent']} 70%", "-active": theme["accent"]}
    bars |= {f"-background{state}": theme["background"] for state in ("", "-hover", "-active")}
    return {"quiet": quiet, "rule": rule, "band": band} | {f"scrollbar{part}": bars[part] for part in bars}
