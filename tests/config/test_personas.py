"""Personas and presets: shipped ones are whole, the user's come over them, bad files are reported and left out."""

from pathlib import Path

import pytest

from specchat.config.paths import shipped
from specchat.config.personas import Persona, load_personas
from specchat.config.presets import Preset, load_presets
from specchat.engine.protocol.options import Sampling
from tests.config.conftest import Write


def test_the_shipped_ones_are_whole() -> None:
    personas, problems = load_personas([shipped("personas.toml")])
    assert not problems
    assert {"concise"} < {persona.name for persona in personas}
    presets, problems = load_presets([shipped("presets.toml")])
    assert not problems
    by_name = {preset.name: preset.sampling for preset in presets}
    assert list(by_name) == ["exact", "balanced", "creative"]
    assert by_name["exact"] == Sampling()


def test_the_users_own_come_over_the_shipped(write: Write, tmp_path: Path) -> None:
    first = write("1.toml", '[[persona]]\nname = "a"\nsystem = "one"\n[[persona]]\nname = "b"\nsystem = "two"\n')
    own = write("2.toml", '[[persona]]\nname = "a"\nsystem = " three\\n"\nprefill = "So,"\npair = "demo"\n')
    personas, problems = load_personas([first, own, tmp_path / "none.toml"])
    assert (personas, problems) == ([Persona("a", "three", "So,", "demo"), Persona("b", "two")], [])
    again = write("p.toml", '[[preset]]\nname = "x"\ntop_k = 5\n[[preset]]\nname = "x"\ntemperature = 1\n')
    assert load_presets([again]) == ([Preset("x", Sampling(temperature=1.0))], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[persona]]\nname = "a"\nsistem = "x"', 'sistem is not a known key. Did you mean "system"?'),
        ('[[persona]]\nname = "none"\nsystem = "x"', "stands for no persona"),
        ('[[persona]]\nname = "two words"\nsystem = "x"', "name should be letters and digits"),
        ('[[persona]]\nname = "a"\nsystem = ""', "persona[0].system"),
        ("[[persona", "is not valid TOML"),
    ],
)
def test_mistakes_in_personas_are_reported(write: Write, text: str, words: str) -> None:
    path = write("personas.toml", text)
    personas, (problem,) = load_personas([path])
    assert personas == []
    assert str(path) in problem
    assert words in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[preset]]\nname = "a"\ntemprature = 1.0', 'temprature is not a known key. Did you mean "temperature"?'),
        ('[[preset]]\nname = "a"\ntemperature = 11', "preset[0].temperature should be less than or equal to 10"),
        ("[[preset]]\ntemperature = 1.0", "preset[0].name is missing"),
        ('[[presets]]\nname = "a"', 'Did you mean "preset"?'),
    ],
)
def test_mistakes_in_presets_are_reported(write: Write, text: str, words: str) -> None:
    presets, (problem,) = load_presets([write("presets.toml", text)])
    assert presets == []
    assert words in problem
