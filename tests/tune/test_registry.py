"""What was tuned, in models.toml and out of it again: whatever fails, the pair is as it was."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.models.declare import setting_of
from specchat.tune import registry
from specchat.tune.registry import give_back, register, take_away, use, used_by
from specchat.tune.shelf import Tuned, shelved

DRAFT = Tuned("one-draft", "draft", "one", 1.0, "prompts")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(
        'schema = 1\n[[pair]]\nid = "one"\ntarget = { path = "t" }\ndraft = { path = "d", quant = "int8" }\n'
    )
    return path


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    folder = tmp_path / "finished"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    return folder


def test_the_last_one_leads_back_past_those_that_were_deleted(toml: Path, finished: Path, tmp_path: Path) -> None:
    shelf, before = tmp_path / "shelf", toml.read_bytes()
    first, second, third = (register(DRAFT, finished, shelf, toml) for _ in range(3))
    assert [one.id for one in shelved(shelf)] == ["one-draft", "one-draft-2", "one-draft-3"]
    assert setting_of(toml, "one", "draft") == {"path": str(third.folder), "quant": "int8"}
    assert take_away(second, shelf, toml)[1] == []
    (third,) = (one for one in shelved(shelf) if one.id == third.id)
    assert give_back(third, toml) == ["one"]
    assert used_by(first, toml) == ["one"]
    use(third, toml)
    take_away(first, shelf, toml)
    (third,) = shelved(shelf)
    size, pairs = take_away(third, shelf, toml)
    assert (size > 100, pairs) == (True, ["one"])
    assert toml.read_bytes() == before
    assert not list(shelf.iterdir())


def test_a_table_of_its_own_is_put_in_and_out(toml: Path, tmp_path: Path) -> None:
    before = toml.read_bytes()
    made = replace(DRAFT, key="heads.medusa", value={"repo": "a/b"})
    laid = register(made, None, tmp_path / "shelf", toml)
    assert used_by(laid, toml) == ["one"]
    assert load_catalog(toml).find("one").spec.heads["medusa"].repo == "a/b"
    take_away(laid, tmp_path / "shelf", toml)
    assert toml.read_bytes() == before


def refused(*_: object) -> None:
    raise ConfigError("models.toml cannot be written (No space left on device).")


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("name", "fails"), [("set_setting", refused), ("setting_of", refused), ("install", full)])
def test_what_fails_leaves_nothing(
    toml: Path, finished: Path, tmp_path: Path, name: str, fails: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = toml.read_bytes()
    monkeypatch.setattr(registry, name, fails)
    with pytest.raises((ConfigError, OSError), match="No space left"):
        register(DRAFT, finished, tmp_path / "shelf", toml)
    assert toml.read_bytes() == before
    assert not list((tmp_path / "shelf").iterdir())


def test_what_a_killed_process_left_is_not_listed_and_goes(toml: Path, finished: Path, tmp_path: Path) -> None:
    begun = tmp_path / "shelf" / ".one-draft.new"
    begun.mkdir(parents=True)
    (begun / "half").write_bytes(b"x")
    replace(DRAFT, folder=begun).note()
    assert not list(shelved(tmp_path / "shelf"))
    laid = register(DRAFT, finished, tmp_path / "shelf", toml)
    assert {file.name for file in laid.folder.iterdir()} == {"model.safetensors", "tuned.json"}
    assert not begun.exists()


def test_a_folder_that_cannot_be_deleted_leaves_the_pair_without_it(
    toml: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = toml.read_bytes()
    laid = register(DRAFT, finished, tmp_path / "shelf", toml)
    monkeypatch.setattr(registry, "remove", full)
    with pytest.raises(OSError, match="No space left"):
        take_away(laid, tmp_path / "shelf", toml)
    assert toml.read_bytes() == before
