"""What models.toml says of pairs that transformers runs."""

from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError


def declared(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "models.toml"
    pair = ("schema = 1", "[[pair]]", 'id = "mine"', 'target = { path = "x" }', *lines)
    file.write_text("\n".join(pair))
    return file


def test_programs_are_trusted_by_the_pairs_that_say_so(tmp_path: Path) -> None:
    file = declared(tmp_path, 'backend = "hf"', "trust_remote_code = true")
    assert load_catalog(file).find("mine").spec.trust_remote_code
    assert not load_catalog(declared(tmp_path, 'backend = "hf"')).find("mine").spec.trust_remote_code


def test_programs_are_trusted_with_no_other_backend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='trust_remote_code goes with backend = "hf" only'):
        load_catalog(declared(tmp_path, "trust_remote_code = true"))
