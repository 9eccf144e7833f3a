"""presets.toml: sampling under a name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.config.errors import ConfigError
from specchat.config.files import read_tables
from specchat.engine.options import Sampling


@dataclass(frozen=True)
class Preset:
    """Sampling settings; one that the file leaves out is off."""

    name: str
    sampling: Sampling


def load_presets(files: Sequence[Path]) -> tuple[list[Preset], list[str]]:
    """The presets in `files`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A file that does not exist holds none.
    """
    presets: dict[str, Preset] = {}
    problems: list[str] = []
    for path in files:
        try:
            tables = read_tables(path, "presets", optional=True).get("preset", ())
        except ConfigError as error:
            problems.append(error.message)
        else:
            for table in tables:
                name = table.pop("name")
                presets[name] = Preset(name, Sampling(**table))
    return list(presets.values()), problems
