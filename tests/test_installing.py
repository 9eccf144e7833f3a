"""The command that is advised installs into the environment that specchat runs in."""

import sys
from pathlib import Path

import pytest

from specchat.installing import install_command


@pytest.mark.parametrize(
    ("shells", "has_pip", "command"),
    [
        ("env/bin", True, 'pip install "specchat[gguf]" keyring'),
        ("usr/bin", True, "'{0}/my env/bin/python' -m pip install \"specchat[gguf]\" keyring"),
        ("none", True, "'{0}/my env/bin/python' -m pip install \"specchat[gguf]\" keyring"),
        ("none", False, "uv pip install --python '{0}/my env/bin/python' \"specchat[gguf]\" keyring"),
    ],
)
def test_the_advised_command_is_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shells: str, has_pip: bool, command: str
) -> None:
    for folder in ("my env/bin", "usr/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pip").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / shells.replace("env/", "my env/")))
    monkeypatch.setattr("specchat.installing.find_spec", lambda _: object() if has_pip else None)
    assert install_command("specchat[gguf]", "keyring") == command.format(tmp_path)


def test_pipx_adds_what_an_upgrade_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipx_metadata.json").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("specchat[gguf]", "keyring") == "pipx inject specchat gguf llama-cpp-python keyring"
