"""Theme files: shipped ones are whole, bad ones are told and left out."""

from pathlib import Path

import pytest

from specchat.config.errors import ConfigError
from specchat.config.paths import shipped
from specchat.config.themes import SpecTable, Theme, ThemeFile, load_themes, read_theme
from specchat.engine.strategies import SOURCES
from tests.config.conftest import Write

SMALL = 'name = "mine"\ndark = true\nprimary = "#8ac"\n[spec]\ndraft = "#0000FF"\n'


def test_a_theme_is_read(write: Write) -> None:
    assert read_theme(write("t.toml", SMALL)) == Theme("mine", True, {"primary": "#8ac"}, {"draft": "#0000FF"})


def test_shipped_themes_name_every_colour() -> None:
    themes, problems = load_themes([shipped("themes")])
    assert problems == []
    assert {theme.dark for theme in themes} == {True, False}
    for theme in themes:
        assert {"name", "dark", "spec", *theme.colors} == set(ThemeFile.model_fields)
        assert set(theme.spec) == {*SOURCES, "rejected"} == set(SpecTable.model_fields)


def test_a_later_folder_wins_and_bad_files_are_told(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    (first / "mine.toml").write_text(SMALL)
    (first / "broken.toml").write_text("name =")
    (second / "mine.toml").write_text(SMALL.replace("#8ac", "#fff"))
    (second / "notes.txt").write_text("no theme")
    themes, problems = load_themes([first, second, tmp_path / "nowhere"])
    assert [theme.colors["primary"] for theme in themes] == ["#fff"]
    assert len(problems) == 1
    assert "broken.toml" in problems[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("#8ac", "blue", "primary should be a colour like #8ac or #88aacc, not 'blue'"),
        ("#8ac", "#8acf", "primary should be a colour"),
        ("primary", "primry", 'primry is not a known key. Did you mean "primary"?'),
        ("draft", "drafts", 'spec.drafts is not a known key. Did you mean "draft"?'),
        ("true", '"yes"', "dark should be a valid boolean"),
        ('"mine"', '"my theme"', "name should be letters and digits"),
    ],
)
def test_mistakes_are_told_with_file_and_key(write: Write, old: str, new: str, words: str) -> None:
    path = write("t.toml", SMALL.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_theme(path)
    assert str(path) in caught.value.message
    assert words in caught.value.message
