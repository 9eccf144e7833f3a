"""Theme files: shipped ones are whole, bad ones are reported and left out."""

from itertools import combinations
from math import dist
from pathlib import Path

import pytest

from specchat.chat.sources import LEGEND
from specchat.config.errors import ConfigError
from specchat.config.paths import shipped
from specchat.config.tables import SpecTable, ThemeFile
from specchat.config.themes import Theme, load_themes, read_theme, unknown_theme
from tests.config.conftest import Write

SMALL = 'name = "mine"\ndark = true\nprimary = "#8ac"\n[spec]\ndraft = "#0000FF"\n'


def test_a_theme_is_read(write: Write) -> None:
    assert read_theme(write("t.toml", SMALL)) == Theme("mine", True, {"primary": "#8ac"}, {"draft": "#0000FF"})


def test_what_is_no_theme_is_told_with_those_there_are() -> None:
    themes = [Theme("mine", True, {}, {})]
    assert unknown_theme("mine", themes) == ""
    assert unknown_theme("min", themes) == 'There is no theme "min". Did you mean "mine"?'
    there_are = unknown_theme("0", themes)
    assert there_are.startswith('There is no theme "0". There are ')
    assert " mine," in there_are


def test_a_theme_may_use_the_terminals_palette(write: Write) -> None:
    theme = read_theme(
        write("t.toml", SMALL.replace("dark = true", "dark = true\nansi = true").replace("#8ac", "ansi_cyan"))
    )
    assert theme == Theme("mine", True, {"primary": "ansi_cyan"}, {"draft": "#0000FF"}, ansi=True)


def test_shipped_themes_name_every_colour() -> None:
    themes, problems = load_themes([shipped("themes")])
    assert problems == []
    assert {theme.dark for theme in themes} == {True, False}
    for theme in themes:
        assert {"name", "dark", "ansi", "spec", *theme.colors} == set(ThemeFile.model_fields)
        assert set(theme.spec) == {source.name for source in LEGEND} == set(SpecTable.model_fields)


def test_a_later_folder_wins_and_bad_files_are_reported(tmp_path: Path) -> None:
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
        ("#8ac", "blue", "primary should be a colour like #8ac or #88aacc, or ansi_cyan, not 'blue'"),
        ("#8ac", "#8acf", "primary should be a colour"),
        ("#8ac", "ansi_pink", "primary should be a colour"),
        ("#8ac", "ansi_blue", "primary is ansi_blue, which needs ansi = true."),
        ("#0000FF", "ansi_default", "draft is ansi_default, which needs ansi = true."),
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


# What can be read: contrast as in WCAG 2.2, and colours of sources far enough apart in CIELAB.

SHIPPED, _ = load_themes([shipped("themes")])
COLOURED = [theme for theme in SHIPPED if not theme.ansi]


def linear(colour: str) -> tuple[float, float, float]:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str) -> tuple[float, float, float]:
    red, green, blue = linear(colour)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, luminance(colour), z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def test_the_measure_is_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert lab("#ffffff") == pytest.approx((100, 0, 0), abs=0.1)
    assert lab("#ff0000") == pytest.approx((53.2, 80.1, 67.2), abs=0.2)


def test_there_is_a_choice() -> None:
    assert len(SHIPPED) >= 8
    assert sum(not theme.dark for theme in SHIPPED) >= 3
    assert [theme.name for theme in SHIPPED if theme.ansi] == ["terminal"]
    assert {path.stem for path in shipped("themes").glob("*.toml")} == {theme.name for theme in SHIPPED}


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_shipped_themes_can_be_read(theme: Theme) -> None:
    least = 7.0 if theme.name.startswith("contrast") else 4.5
    colour = theme.colors
    for ground in ("background", "surface", "panel"):
        assert contrast(colour["foreground"], colour[ground]) >= least, ground
    for name in ("primary", "secondary", "accent", "warning", "error", "success"):
        assert contrast(colour[name], colour["background"]) >= 4.5, name
    for source, shown in theme.spec.items():
        assert contrast(shown, colour["background"]) >= 3, source


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_sources_can_be_told_apart(theme: Theme) -> None:
    grey = all(len({shown[i : i + 2] for i in (1, 3, 5)}) == 1 for shown in theme.spec.values())
    for one, other in combinations(theme.spec, 2):
        assert dist(lab(theme.spec[one]), lab(theme.spec[other])) >= (7 if grey else 15), (one, other)


def test_the_terminals_palette_names_a_colour_for_each_source() -> None:
    (theme,) = (theme for theme in SHIPPED if theme.ansi)
    assert len(set(theme.spec.values())) == len(theme.spec)
    assert {theme.colors[name] for name in ("foreground", "background", "surface")} == {"ansi_default"}
