"""A theme file's colours as a Textual theme."""

from collections.abc import Mapping

from textual.theme import Theme

DEFAULT_THEME = "ink"

SPEC_DEFAULTS: dict[str, str] = {
    "spec-draft": "#8fc38a",
    "spec-lookup": "#c7a0e0",
    "spec-swift": "#7fa8ec",
    "spec-target": "#e8a87c",
    "spec-bonus": "#6cb6c9",
    "spec-plain": "#d5dbe3",
    "spec-rejected": "#7d8694",
}
"""Colours of token sources for themes that name none."""


def textual_theme(name: str, *, dark: bool, colors: Mapping[str, str], spec: Mapping[str, str]) -> Theme:
    """A theme from plain data: `colors` by Textual's names, `spec` by token source."""
    return Theme(
        name=name,
        dark=dark,
        primary=colors["primary"],
        secondary=colors.get("secondary"),
        accent=colors.get("accent"),
        foreground=colors.get("foreground"),
        background=colors.get("background"),
        surface=colors.get("surface"),
        panel=colors.get("panel"),
        warning=colors.get("warning"),
        error=colors.get("error"),
        success=colors.get("success"),
        variables={f"spec-{source}": color for source, color in spec.items()},
    )
