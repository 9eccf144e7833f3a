"""A theme file's colours as a Textual theme."""

from textual import theme as textual

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
