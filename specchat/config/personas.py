"""personas.toml: system prompts under a name."""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from specchat.config.errors import ConfigError
from specchat.config.files import read_tables
from specchat.dataclass import dataclass


@dataclass(frozen=True)
class Persona:
    """A system prompt, with the words every reply begins with and the id of the pair to load, where it has them."""

    name: str
    system: str
    prefill: str = ""
    pair: str | None = None


def load_personas(files: Sequence[Path], pairs: Container[str]) -> tuple[list[Persona], list[str]]:
    """The personas in `files`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A file that does not exist holds none. A persona whose pair is not among the ids `pairs` is taken without it.
    """
    personas: dict[str, Persona] = {}
    problems: list[str] = []
    for path in files:
        try:
            tables = read_tables(path, "personas", optional=True).get("persona", ())
        except ConfigError as error:
            problems.append(error.message)
            continue
        for table in tables:
            name, pair = table["name"], table.get("pair")
            if pair is not None and pair not in pairs:
                problems.append(f'{path}: persona "{name}": there is no pair "{pair}"; it keeps the loaded one.')
                pair = None
            personas[name] = Persona(name, table["system"].strip(), table.get("prefill", ""), pair)
    return list(personas.values()), problems


def persona_of(system: str, personas: Iterable[Persona]) -> Persona | None:
    """The persona with this system prompt."""
    return next((persona for persona in personas if persona.system == system), None)


def persona_name(system: str, personas: Iterable[Persona]) -> str:
    """A word for a chat's system prompt; empty where it has none."""
    persona = persona_of(system, personas)
    return persona.name if persona else "own system prompt" if system else ""
