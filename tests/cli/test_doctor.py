"""`specchat doctor` as a command."""

import json
import re
from pathlib import Path

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.config.catalog import load_catalog
from specchat.doctor.finding import Finding
from specchat.engine.protocol.requests import Load
from tests.cli.conftest import Run, configure
from tests.engine.tiny import checkpoint
from tests.fake import FakeEngine
from tests.models.made import gguf, no_home


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.doctor.gpu.gpus", list)


def findings(run: Run, *arguments: str, code: int = 0) -> dict[str, dict[str, str]]:
    result = run("doctor", "--json", *arguments)
    assert result.exit_code == code, result.output
    report = json.loads(result.stdout)
    assert report["usable"] is (code == 0)
    return {finding["name"]: finding for finding in report["findings"]}


def test_a_line_each_and_nothing_is_made(run: Run, home: Path) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    *lines, empty, end = result.stdout.splitlines()
    assert all(re.match(r"(ok|note|problem) +[\w ]+  \S", line) for line in lines)
    assert (empty, end) == ("", "specchat can be used.")
    pairs = f"{len(load_catalog(None).pairs)} pairs"
    for words in (f"{home}/config: made when it is needed", "textual 8", "FTS5", pairs, "demo: demo", "ink"):
        assert words in result.stdout
    assert not home.exists()


def test_the_users_files_are_judged(run: Run, home: Path) -> None:
    configure(home, config='theme = "paper"\n', models='schema = 1\n[[pair]]\nid = "mine"\ntarget.path = "/t"\n')
    found = findings(run)
    assert found["settings"]["text"] == f"{home}/config/config.toml: theme"
    assert f"with those of {home}/config/models.toml" in found["models"]["text"]


@pytest.mark.parametrize(
    ("files", "name", "words"),
    [
        ({"config": "them = 3\n"}, "settings", 'Did you mean "theme"?'),
        ({"models": "schema = 1\npairs = 3\n"}, "models", 'Did you mean "pair"?'),
        ({"config": 'pair = "dmo"\n'}, "pair", 'There is no pair "dmo"'),
    ],
)
def test_what_keeps_specchat_from_working_has_its_code(
    run: Run, home: Path, files: dict[str, str], name: str, words: str
) -> None:
    configure(home, **files)
    finding = findings(run, code=ExitCode.UNUSABLE)[name]
    assert finding["status"] == "problem"
    assert words in finding["text"]
    assert "cannot be used" in run("doctor").stdout


def test_a_wanted_theme_that_is_not_there_is_told(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(home, config='theme = "papre"\n')
    finding = findings(run)["theme"]
    assert finding["status"] == "note"
    assert 'config.toml: There is no theme "papre". Did you mean "paper"?' in finding["text"]
    configure(home, config='theme = "nord"\n')
    assert "theme" not in findings(run)
    monkeypatch.setenv("SPECCHAT_THEME", "ikn")
    finding = findings(run, code=ExitCode.UNUSABLE)["theme"]
    assert 'SPECCHAT_THEME: There is no theme "ikn". Did you mean "ink"?' in finding["text"]


def test_a_bad_theme_is_left_out_and_told(run: Run, home: Path) -> None:
    (home / "config" / "themes").mkdir(parents=True)
    (home / "config" / "themes" / "bad.toml").write_text("\x1b name =")
    result = run("doctor")
    assert result.exit_code == 0
    assert re.search(r"^note +themes +.*bad\.toml is not valid TOML.*It is left out\.$", result.stdout, re.MULTILINE)
    assert "\x1b" not in result.stdout


@pytest.mark.usefixtures("engines")
def test_the_chats_are_looked_at(run: Run, home: Path) -> None:
    assert findings(run)["chats"]["text"].endswith("chats.db yet: made with the first chat")
    assert run("ask", "--save", "hello").exit_code == 0
    finding = findings(run)["chats"]
    assert finding["status"] == "ok"
    assert "chats.db: 1 chat, 2 messages, 0.1 MiB, schema 2" in finding["text"]
    (database,) = home.rglob("chats.db")
    database.write_bytes(b"no database" * 500)
    finding = findings(run)["chats"]
    assert finding["status"] == "note"
    assert f"damaged or no database of specchat. Move {database} away" in finding["text"]


def test_keys_are_judged_as_the_app_does(run: Run, home: Path) -> None:
    assert findings(run)["keymap"]["text"] == "as shipped"
    configure(home, keys='settings = "alt+s"\n')
    assert findings(run)["keymap"]["text"] == f"{home}/config/keys.toml: settings"
    configure(home, keys='setings = "alt+s"\ntoken-view = "f1"\nquit = "ctrl+"\n')
    finding = findings(run)["keymap"]
    assert finding["status"] == "note"
    for words in (
        'setings is not a known action. Did you mean "settings"?',
        "F1 is the key of help already",
        '"ctrl+" is not a key',
        "The file is left out.",
    ):
        assert words in finding["text"]


def test_personas_and_presets_are_read(run: Run, home: Path) -> None:
    for name, good, bad, words in (
        ("personas", 'system = "Arr."', 'system = "Arr."\npair = "gone"', 'There is no pair "gone"'),
        ("personas", 'system = "Arr."', "sytem = 1", "is not a known key"),
        ("presets", "top_k = 5", "temperature = 20", "less than or equal to 10"),
    ):
        file = home / "config" / f"{name}.toml"
        file.unlink(missing_ok=True)
        assert findings(run)[name] == {"name": name, "status": "ok", "text": "as shipped"}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'[[{name[:-1]}]]\nname = "mine"\n{good}\n')
        assert findings(run)[name]["text"] == f"{file}: mine"
        file.write_text(f'[[{name[:-1]}]]\nname = "mine"\n{bad}\n')
        finding = findings(run)[name]
        assert finding["status"] == "note"
        assert words in finding["text"]


def test_a_persona_may_bring_a_model_that_was_found(run: Run, home: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path / "models" / "own")
    persona = '[[persona]]\nname = "mine"\nsystem = "Arr."\npair = "own"\n'
    configure(home, config=f"model_folders = [{json.dumps(str(tmp_path / 'models'))}]\n", personas=persona)
    assert findings(run)["personas"]["status"] == "ok"


def test_servers_of_tools_are_looked_at_without_a_start(run: Run, home: Path) -> None:
    file = home / "config" / "mcp.json"
    assert findings(run)["tools"]["text"] == f"no {file}: no servers"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"mcpServers": {"files": {"command": "/no/such"}, "web": {"url": "https://a"}}}')
    assert findings(run)["tools"]["text"] == f"{file}: files, web"
    for about, words in (
        ('{"command": 3}', "command should be text."),
        ('{"command": "${NO_SUCH}"}', "NO_SUCH is not"),
    ):
        file.write_text(f'{{"mcpServers": {{"files": {about}}}}}')
        finding = findings(run)["tools"]
        assert finding["status"] == "note"
        assert f"files cannot be used. {'The environment variable ' * ('NO' in words)}{words}" in finding["text"]
    file.write_text("{")
    assert "is not valid JSON" in findings(run)["tools"]["text"]


def test_the_engine_is_loaded_only_when_asked_for(
    run: Run, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    findings(run)
    assert engines == []
    found = findings(run, "--engine", "--pair", "qwen3-1.7b")
    assert found["plain speed"]["text"].startswith("100 tok/s")
    load = engines[0].requests[0]
    assert isinstance(load, Load)
    assert load.pair.id == "qwen3-1.7b"
    assert not engines[0].alive


def test_an_engine_that_cannot_load_makes_specchat_unusable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    broken = FakeEngine()
    broken.fail_load("memory", "It does not fit.")
    monkeypatch.setattr("specchat.engine.process.client.EngineClient", lambda _: broken)
    assert findings(run, "--engine", code=ExitCode.UNUSABLE)["engine"]["text"] == "It does not fit."


def test_problems_of_the_files_keep_the_engine_out(run: Run, home: Path, engines: list[FakeEngine]) -> None:
    configure(home, config="seed = -1\n")
    assert "engine" not in findings(run, "--engine", code=ExitCode.UNUSABLE)
    assert engines == []


def test_a_closed_pipe_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> list[Finding]:
        raise BrokenPipeError

    monkeypatch.setattr("specchat.cli.output.Output.write", closed)
    assert run("doctor").exit_code == 0


def test_found_models_that_need_a_package_are_told(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_home(monkeypatch, home)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    configure(home, config=f"model_folders = [{json.dumps(str(home / 'own'))}]\n")
    gguf(home / "own" / "tiny" / "m.gguf")
    for missing, words in (
        (set(), "1 found on this machine"),
        ({"llama_cpp"}, "1 cannot be loaded. The first: needs llama"),
    ):
        monkeypatch.setattr("specchat.models.machine.missing_packages", lambda missing=missing: missing)
        assert words in run("doctor").stdout
