"""Theme files: colours by Textual's names, and one for each source of tokens."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specchat.config.errors import ConfigError, nearest
from specchat.config.files import read_tables
from specchat.dataclass import dataclass

OF_TEXTUAL = (
    *("ansi-dark", "ansi-light", "atom-one-dark", "atom-one-light", "catppuccin-frappe", "catppuccin-latte"),
    *("catppuccin-macchiato", "catppuccin-mocha", "dracula", "flexoki", "gruvbox", "monokai", "nord", "rose-pine"),
    *("rose-pine-dawn", "rose-pine-moon", "solarized-dark", "solarized-light", "textual-dark", "textual-light"),
    "tokyo-night",
)
"""Textual's own themes, which only the app may import."""


@dataclass(frozen=True)
class Theme:
    """A theme by plain data: `colors` by Textual's names, `spec` by token source; `#rgb`, `#rrggbb` or `ansi_NAME`.

    `ansi` takes what is named so from the terminal's palette; only then are there such names.
    """

    name: str
    dark: bool
    colors: Mapping[str, str]
    spec: Mapping[str, str]
    ansi: bool = False


def load_themes(folders: Sequence[Path]) -> tuple[list[Theme], list[str]]:
    """The themes in `folders`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A folder that does not exist holds none.
    """
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in folders:
        try:
            files = sorted(folder.glob("*.toml"))
        except OSError as error:
            problems.append(f"{folder} cannot be read ({error.strerror}).")
            continue
        for path in files:
            try:
                theme = read_theme(path)
            except ConfigError as error:
                problems.append(error.message)
            else:
                themes[theme.name] = theme
    return list(themes.values()), problems


def unknown_theme(name: str, themes: Iterable[Theme]) -> str:
    """A sentence about the theme called `name`, which is neither of `themes` nor Textual's; empty where it is."""
    known = [*(theme.name for theme in themes), *OF_TEXTUAL]
    if name in known:
        return ""
    there_are = f" There are {', '.join(sorted(known))}."
    return f'There is no theme "{name}".{nearest(name, known) or there_are}'


def read_theme(path: Path) -> Theme:
    """One theme file.

    Raises:
        ConfigError: it is no TOML, or a key or colour in it is wrong.
    """
    colors = read_tables(path, "theme")
    name, dark, ansi, spec = (colors.pop(key, None) for key in ("name", "dark", "ansi", "spec"))
    return Theme(name, dark, colors, spec or {}, bool(ansi))
