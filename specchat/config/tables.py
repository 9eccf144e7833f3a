"""The tables and keys of config.toml, theme files, personas.toml and presets.toml; and which file has which."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from specchat.attention import Notify
from specchat.config.checks import Table, matching
from specchat.config.kinds import NO_PERSONA, Kind
from specchat.config.models_file import ModelsFile, Name, SamplingTable, Strategy
from specchat.engine.prefixes.bounds import bytes_in
from specchat.engine.protocol.options import Acceptance, ContextPolicy
from specchat.engine.protocol.ranges import MAX_SEED
from specchat.engine.strategy import MAX_DRAFT_LENGTH

_ANSI = "ansi_(default|(bright_)?(black|red|green|yellow|blue|magenta|cyan|white))"
Colour = Annotated[
    str, matching(f"#([0-9a-fA-F]{{3}}|[0-9a-fA-F]{{6}})|{_ANSI}", "a colour like #8ac or #88aacc, or ansi_cyan")
]


def _known_size(size: str) -> str:
    bytes_in(size)
    return size


Size = Annotated[str, AfterValidator(_known_size)]


class SettingsTable(Table):
    """The user's preferences, below the command line and the environment."""

    theme: str | None = None
    pair: str | None = None
    strategy: Strategy | None = None
    draft_length: Annotated[int, Field(ge=1, le=MAX_DRAFT_LENGTH)] | None = None
    acceptance: Acceptance | None = None
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    system: str | None = None
    context: ContextPolicy | None = None
    copy_saved_chats: bool | None = None
    keep_last_question: bool | None = None
    engine_minutes: Annotated[int, Field(ge=0, le=1440)] | None = None
    gpu_minutes: Annotated[int, Field(ge=0, le=1440)] | None = None
    notify: Notify | None = None
    sync_folder: Annotated[str, Field(min_length=1)] | None = None
    keep_read: Size | None = None
    keep_read_on_disk: Size | None = None
    tools: bool | None = None
    tool_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    model_folders: list[Annotated[str, Field(min_length=1)]] | None = None


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


def _not_none(name: str) -> str:
    if name == NO_PERSONA:
        raise ValueError(f'"{NO_PERSONA}" stands for no persona. Choose another name.')
    return name


class PersonaTable(Table):
    name: Annotated[Name, AfterValidator(_not_none)]
    system: Annotated[str, Field(min_length=1)]
    prefill: str = ""
    pair: Name | None = None


class PersonasFile(Table):
    persona: list[PersonaTable] = Field(default_factory=list)


class PresetTable(SamplingTable):
    name: Name


class PresetsFile(Table):
    preset: list[PresetTable] = Field(default_factory=list)


FILES: dict[Kind, type[Table]] = {
    "settings": SettingsTable,
    "models": ModelsFile,
    "theme": ThemeFile,
    "personas": PersonasFile,
    "presets": PresetsFile,
}
