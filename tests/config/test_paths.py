"""Where files are."""

import sys
from pathlib import Path

import pytest

from specchat.config import paths
from specchat.config.errors import ConfigError


def test_one_variable_moves_everything(tmp_path: Path) -> None:
    found = paths.user_paths({"SPECCHAT_HOME": str(tmp_path)})
    assert found.config == tmp_path / "config"
    assert found.models_file == tmp_path / "config" / "models.toml"
    assert found.settings_file == tmp_path / "config" / "config.toml"
    assert found.keys_file == tmp_path / "config" / "keys.toml"
    assert found.personas_file == tmp_path / "config" / "personas.toml"
    assert found.presets_file == tmp_path / "config" / "presets.toml"
    assert found.themes == tmp_path / "config" / "themes"
    assert found.data == tmp_path / "data"
    assert found.cache == tmp_path / "cache"
    assert found.engine_log == tmp_path / "state" / "engine.log"
    assert not (tmp_path / "state").exists()


def test_the_platform_keeps_four_folders_apart() -> None:
    found = paths.user_paths({})
    assert len({found.config, found.data, found.cache, found.state}) == 4
    assert all("specchat" in folder.parts for folder in (found.config, found.data, found.cache, found.state))


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone")
@pytest.mark.filterwarnings("error")
def test_sockets_are_in_the_login_s_folder_if_it_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = tmp_path / "run"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(login))
    for mode, private in ((None, False), (0o755, False), (0o700, True)):
        if mode is not None:
            login.mkdir(exist_ok=True)
            login.chmod(mode)
        found = paths.user_paths()
        assert found.runtime == (login / "specchat" if private else found.cache / "run")


def test_the_settings_file_can_be_named(tmp_path: Path) -> None:
    named = {"SPECCHAT_HOME": str(tmp_path), "SPECCHAT_CONFIG_FILE": str(tmp_path / "other.toml")}
    assert paths.user_paths(named).settings_file == tmp_path / "other.toml"


def test_folders_are_private(tmp_path: Path) -> None:
    folder = paths.private_folder(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    paths.private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="SPECCHAT_HOME"):
        paths.private_folder(tmp_path / "file" / "b")


def test_installed_files_come_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.shipped("themes").is_dir()
    package = tmp_path / "specchat"
    monkeypatch.setattr(paths, "PACKAGE", package)
    assert paths.shipped("models.toml") == tmp_path / "models.toml"
    (package / "_shipped").mkdir(parents=True)
    (package / "_shipped" / "models.toml").write_text("")
    assert paths.shipped("models.toml") == package / "_shipped" / "models.toml"


@pytest.mark.parametrize("variable", ["SPECCHAT_HOME", "SPECCHAT_CONFIG_FILE"])
def test_the_home_of_nobody_is_reported(variable: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable} is ~nobody-here/x"):
        paths.user_paths({variable: "~nobody-here/x"})
