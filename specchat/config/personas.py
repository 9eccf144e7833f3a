"""personas.toml: system prompts under a name."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from specchat.config.errors import ConfigError
from specchat.config.files import read_tables
from specchat.dataclass import dataclass


@dataclass(frozen=True)
class Persona:
    """A system prompt, with the words every reply begins with and the name of the pair to load, where it has them."""

    name: str
    system: str
    prefill: str = ""
    pair: str | None = None


def load_personas(files: Sequence[Path]) -> tuple[list[Persona], list[str]]:
    """The personas in `files`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A file that does not exist holds none. Pairs are looked for where a persona is used, as their names may be those of
    models on this machine.
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
            name = table["name"]
            personas[name] = Persona(name, table["system"].strip(), table.get("prefill", ""), table.get("pair"))
    return list(personas.values()), problems


def persona_of(system: str, personas: Iterable[Persona]) -> Persona | None:
    """The persona with this system prompt."""
    return next((persona for persona in personas if persona.system == system), None)


def persona_name(system: str, personas: Iterable[Persona]) -> str:
    """A word for a chat's system prompt; empty where it has none."""
    persona = persona_of(system, personas)
    return persona.name if persona else "own system prompt" if system else ""
