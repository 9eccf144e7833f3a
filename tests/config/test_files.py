"""What ships with specchat is taken as it is: it passes the check, which changes nothing in it."""

from dataclasses import fields
from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.checks import checked
from specchat.config.errors import ConfigError
from specchat.config.files import read_tables, read_toml
from specchat.config.kinds import Kind
from specchat.config.paths import is_shipped, shipped
from specchat.config.settings import UserSettings
from specchat.config.tables import FILES, SettingsTable

OF_KIND: list[tuple[Kind, Path]] = [
    ("models", shipped("models.toml")),
    ("personas", shipped("personas.toml")),
    ("presets", shipped("presets.toml")),
    *(("theme", path) for path in shipped("themes").glob("*.toml")),
]


@pytest.mark.parametrize(("kind", "path"), OF_KIND, ids=lambda value: getattr(value, "stem", ""))
def test_what_ships_is_whole_without_a_check(kind: Kind, path: Path) -> None:
    assert is_shipped(path)
    assert read_tables(path, kind) == checked(FILES[kind], read_toml(path), path)


def test_a_users_file_of_a_shipped_name_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text("schema = 1\nnothing = 2\n")
    with pytest.raises(ConfigError, match="nothing is not a known key"):
        load_catalog(path)


def test_whole_numbers_are_taken_for_floats(tmp_path: Path) -> None:
    path = tmp_path / "presets.toml"
    path.write_text('[[preset]]\nname = "bold"\ntemperature = 1\n')
    (preset,) = read_tables(path, "presets")["preset"]
    assert isinstance(preset["temperature"], float)


def test_every_setting_is_checked() -> None:
    assert {field.name for field in fields(UserSettings)} == set(SettingsTable.model_fields)
