"""personas.toml: system prompts under a name."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from specchat.config.errors import ConfigError
from specchat.config.files import Table, checked, read_toml
from specchat.config.models_file import Name

NONE = "none"
"""The name that stands for no persona."""


@dataclass(frozen=True)
class Persona:
    """A system prompt, with the words every reply begins with and the id of the pair to load, where it has them."""

    name: str
    system: str
    prefill: str = ""
    pair: str | None = None


def _not_none(name: str) -> str:
    if name == NONE:
        raise ValueError(f'"{NONE}" stands for no persona. Choose another name.')
    return name


class PersonaTable(Table):
    name: Annotated[Name, AfterValidator(_not_none)]
    system: Annotated[str, Field(min_length=1)]
    prefill: str = ""
    pair: Name | None = None


class PersonasFile(Table):
    persona: list[PersonaTable] = Field(default_factory=list)


def load_personas(files: Sequence[Path], pairs: Container[str]) -> tuple[list[Persona], list[str]]:
    """The personas in `files`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A file that does not exist holds none. A persona whose pair is not among the ids `pairs` is taken without it.
    """
    personas: dict[str, Persona] = {}
    problems: list[str] = []
    for path in files:
        try:
            file = checked(PersonasFile, read_toml(path, optional=True), path)
        except ConfigError as error:
            problems.append(error.message)
            continue
        for table in file.persona:
            pair = table.pair
            if pair is not None and pair not in pairs:
                problems.append(f'{path}: persona "{table.name}": there is no pair "{pair}"; it keeps the loaded one.')
                pair = None
            personas[table.name] = Persona(table.name, table.system.strip(), table.prefill, pair)
    return list(personas.values()), problems
