"""What `specchat` without a command hands to the app."""

from pathlib import Path

import pytest
from textual.theme import BUILTIN_THEMES

from specchat.cli.exit_codes import ExitCode
from specchat.config.settings import load_settings
from specchat.config.themes import OF_TEXTUAL
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import ModelSource
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from tests.cli.conftest import Run, configure


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """What the app was started with, instead of starting it."""
    found: list[Launch] = []
    monkeypatch.setattr("specchat.cli.app._terminal", lambda: True)
    monkeypatch.setattr(SpecchatApp, "run", lambda app: found.append(app.launch))
    return found


def test_nothing_asked_for_leaves_all_to_the_pair(run: Run, home: Path, launches: list[Launch]) -> None:
    assert run().exit_code == 0
    (launch,) = launches
    chosen = launch.preferences
    assert launch.pair.spec.id == "demo"
    assert (
        chosen.strategy,
        chosen.draft_length,
        chosen.acceptance,
        chosen.sampling,
    ) == (None,) * 4
    assert (chosen.seed, chosen.limits.max_tokens, chosen.system, launch.config.theme) == (
        None,
        None,
        "",
        None,
    )
    assert {"ink", "paper"} <= {theme.name for theme in launch.config.themes}
    assert launch.history == home / "state" / "prompts.jsonl"
    assert launch.config.warnings == ()


def test_options_and_settings_arrive(run: Run, home: Path, launches: list[Launch]) -> None:
    configure(home, config='theme = "paper"\nacceptance = "ratio"\nseed = 3\npair = "qwen3-1.7b"\n')
    assert run("--strategy", "swift", "--draft-length", "2", "--temperature", "0", "--max-tokens", "9").exit_code == 0
    (launch,) = launches
    chosen = launch.preferences
    assert launch.pair.spec.id == "qwen3-1.7b"
    assert (
        chosen.strategy,
        chosen.draft_length,
        chosen.acceptance,
        chosen.seed,
    ) == ("swift", 2, "ratio", 3)
    assert chosen.sampling == Sampling(temperature=0, top_p=0.95, top_k=20)
    assert (chosen.limits.max_tokens, launch.config.theme) == (9, "paper")


def test_a_pair_names_its_heads(run: Run, home: Path, launches: list[Launch]) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "mine"\nheads.eagle3.path = "/h"\ntarget.path = "/t"\n')
    assert run("--pair", "mine").exit_code == 0
    assert launches[0].pair.spec.heads == {"eagle3": ModelSource(path="/h")}


def test_own_themes_are_found_and_bad_ones_told(run: Run, home: Path, launches: list[Launch]) -> None:
    themes = home / "config" / "themes"
    themes.mkdir(parents=True)
    (themes / "mine.toml").write_text('name = "mine"\ndark = true\nprimary = "#123456"\n')
    (themes / "bad.toml").write_text('name = "bad"\ndark = true\nprimary = "red"\n')
    assert run("--theme", "mine").exit_code == 0
    (launch,) = launches
    assert launch.config.theme == "mine"
    assert "mine" in {theme.name for theme in launch.config.themes}
    assert len(launch.config.warnings) == 1
    assert "bad.toml" in launch.config.warnings[0]


def test_an_unknown_theme_is_refused_or_told(run: Run, home: Path, launches: list[Launch]) -> None:
    result = run("--theme", "papre")
    assert result.exit_code == ExitCode.USAGE
    assert 'Did you mean "paper"?' in result.stderr
    configure(home, config='theme = "papre"\n')
    assert run().exit_code == 0
    assert 'There is no theme "papre"' in launches[0].config.warnings[0]
    assert run("--theme", "nord").exit_code == 0


def test_textuals_own_themes_are_known() -> None:
    assert sorted(OF_TEXTUAL) == sorted(BUILTIN_THEMES)


def test_a_state_folder_that_cannot_be_made_is_no_obstacle(run: Run, home: Path, launches: list[Launch]) -> None:
    home.mkdir()
    (home / "state").write_text("in the way")
    assert run().exit_code == 0
    assert launches[0].history is None
    assert "cannot be made" in launches[0].config.warnings[0]


def test_the_app_can_save_a_setting(run: Run, home: Path, launches: list[Launch]) -> None:
    run()
    assert launches[0].config.remember is not None
    launches[0].config.remember("theme", "dusk")
    assert load_settings(home / "config" / "config.toml").theme == "dusk"


def test_wrong_settings_are_told_before_the_window_opens(run: Run, home: Path, launches: list[Launch]) -> None:
    configure(home, config="seed = -3\n")
    result = run()
    assert result.exit_code == ExitCode.UNUSABLE
    assert "seed should be greater than or equal to 0" in result.stderr
    assert launches == []


def test_a_crash_of_the_app_is_an_error(run: Run, launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpecchatApp, "return_code", 1)
    assert run().exit_code == ExitCode.ERROR
    assert len(launches) == 1
