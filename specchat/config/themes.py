"""Theme files: colours by Textual's names, and one for each source of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator

from specchat.config.errors import ConfigError
from specchat.config.files import Table, checked, matching, read_toml

_ANSI = "ansi_(default|(bright_)?(black|red|green|yellow|blue|magenta|cyan|white))"
Colour = Annotated[
    str, matching(f"#([0-9a-fA-F]{{3}}|[0-9a-fA-F]{{6}})|{_ANSI}", "a colour like #8ac or #88aacc, or ansi_cyan")
]


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


class SpecTable(Table):
    draft: Colour | None = None
    lookup: Colour | None = None
    swift: Colour | None = None
    target: Colour | None = None
    bonus: Colour | None = None
    plain: Colour | None = None
    rejected: Colour | None = None


class ThemeFile(Table):
    name: Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9_-]*", "letters and digits, with _ - between")]
    dark: bool
    ansi: bool = False
    primary: Colour
    secondary: Colour | None = None
    accent: Colour | None = None
    foreground: Colour | None = None
    background: Colour | None = None
    surface: Colour | None = None
    panel: Colour | None = None
    warning: Colour | None = None
    error: Colour | None = None
    success: Colour | None = None
    spec: SpecTable = SpecTable()

    @model_validator(mode="after")
    def _palette(self) -> Self:
        colours = {**self.model_dump(exclude={"spec"}), **self.spec.model_dump()}
        for key, value in colours.items():
            if not self.ansi and key != "name" and str(value).startswith("ansi_"):
                raise ValueError(f"{key} is {value}, which needs ansi = true.")
        return self


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


def read_theme(path: Path) -> Theme:
    """One theme file.

    Raises:
        ConfigError: it is no TOML, or a key or colour in it is wrong.
    """
    file = checked(ThemeFile, read_toml(path), path)
    colors = file.model_dump(exclude={"name", "dark", "ansi", "spec"}, exclude_none=True)
    return Theme(file.name, file.dark, colors, file.spec.model_dump(exclude_none=True), file.ansi)
