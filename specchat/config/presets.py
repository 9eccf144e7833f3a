"""presets.toml: sampling under a name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from specchat.config.errors import ConfigError
from specchat.config.files import Table, checked, read_toml
from specchat.config.models_file import Name, SamplingTable
from specchat.engine.api import Sampling


@dataclass(frozen=True)
class Preset:
    """How to sample; what the file leaves out is off."""

    name: str
    sampling: Sampling


class PresetTable(SamplingTable):
    name: Name


class PresetsFile(Table):
    preset: list[PresetTable] = Field(default_factory=list)


def load_presets(files: Sequence[Path]) -> tuple[list[Preset], list[str]]:
    """The presets in `files`, a later one of the same name in place of the earlier, and what is wrong with the rest.

    A file that does not exist holds none.
    """
    presets: dict[str, Preset] = {}
    problems: list[str] = []
    for path in files:
        try:
            file = checked(PresetsFile, read_toml(path, optional=True), path)
        except ConfigError as error:
            problems.append(error.message)
        else:
            for table in file.preset:
                presets[table.name] = Preset(table.name, Sampling(**table.model_dump(exclude={"name"})))
    return list(presets.values()), problems
