"""Heads named in models.toml: in every form that a pair may be written in, and all else stays as it is."""

from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.config.paths import shipped
from specchat.models.declare import set_setting, setting_of

FORMS = {
    "bare": "",
    "sub-tables after": "[pair.sampling]\ntop_k = 3\n",
    "inline": 'heads = { medusa = { path = "m" }, eagle3 = { repo = "a/b", revision = "r" } }\n',
    "builtin": 'heads = { medusa = { path = "m" }, eagle3 = { builtin = "eagle3" } }\n',
    "dotted": 'heads.medusa.path = "m"\n',
    "a table": '[pair.heads]\nmedusa = { path = "m" } # good\n[pair.sampling]\ntop_k = 3\n',
    "a table a head": '[pair.heads.medusa]\npath = "m"\n[pair.heads.eagle3]\npath = "old"\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_heads_are_named_and_all_else_stays(form: str, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    before = f'# mine\nschema = 1\n[[pair]] # one\nid = "one"\ntarget.path = "t"\n{FORMS[form]}'
    after = '# two\n[[pair]]\nid = "two"\ntarget.path = "u"\n'
    path.write_text(before + after)
    had = load_catalog(path)
    set_setting(path, "one", "heads.eagle3", tmp_path / 'h "quoted" ü')
    pair = load_catalog(path).find("one")
    expected = {head: source.path for head, source in had.find("one").spec.heads.items()}
    expected["eagle3"] = str(tmp_path / 'h "quoted" ü')
    assert {head: source.path for head, source in pair.spec.heads.items()} == expected
    assert pair.spec.heads["eagle3"].repo is None
    assert pair.sampling == had.find("one").sampling
    assert load_catalog(path).find("two") == had.find("two")
    kept = path.read_text()
    assert kept.startswith('# mine\nschema = 1\n[[pair]] # one\nid = "one"\ntarget.path = "t"\n')
    assert kept.endswith(after)
    set_setting(path, "one", "heads.eagle3", tmp_path / "again")
    assert load_catalog(path).find("one").spec.heads["eagle3"].path == str(tmp_path / "again")


def test_a_shipped_pair_is_copied_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "models.toml"
    set_setting(path, "demo", "heads.medusa", tmp_path / "h")
    mine, theirs = load_catalog(path).find("demo"), load_catalog(shipped("models.toml")).find("demo")
    assert mine.spec.heads["medusa"].path == str(tmp_path / "h")
    assert {**vars(mine), "spec": None} == {**vars(theirs), "spec": None}
    assert (mine.spec.target, mine.spec.draft) == (theirs.spec.target, theirs.spec.draft)
    assert load_catalog(path).default == "demo"


def test_a_pair_that_there_is_not_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    with pytest.raises(ConfigError, match="has no"):
        set_setting(path, "none", "heads.medusa", tmp_path)
    assert not path.exists()


def test_a_file_that_would_be_wrong_is_left(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('schema = 1\npair = [{ id = "one", target = { path = "t" } }]\n')
    set_setting(path, "one", "heads.eagle3", tmp_path)
    assert load_catalog(path).find("one").spec.heads["eagle3"].path == str(tmp_path)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("form", FORMS)
def test_a_setting_is_given_back_as_it_was(form: str, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(f'schema = 1\n[[pair]]\nid = "one"\ntarget.path = "t"\ndraft = {{ path = "d" }} # d\n{FORMS[form]}')
    had, text = load_catalog(path).find("one"), path.read_text()
    for key in ("heads.eagle3", "draft"):
        before = setting_of(path, "one", key)
        set_setting(path, "one", key, tmp_path / "new")
        assert setting_of(path, "one", key) == {"path": str(tmp_path / "new")}
        set_setting(path, "one", key, before)
        assert setting_of(path, "one", key) == before
        assert load_catalog(path).find("one") == had
    assert path.read_text().splitlines()[:5] == text.splitlines()[:5]


def test_a_setting_that_a_pair_never_had_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('schema = 1\n[[pair]]\nid = "one"\ntarget.path = "t"\n')
    text = path.read_text()
    for key in ("heads.eagle3", "draft"):
        assert setting_of(path, "one", key) is None
        set_setting(path, "one", key, tmp_path)
        set_setting(path, "one", key, None)
        assert path.read_text() == text
