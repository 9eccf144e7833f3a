"""The commands around `ask`: help, version, models, paths, exit codes."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from specchat import __version__
from specchat.cli import main
from specchat.cli.exit_codes import BY_KIND, MEANINGS, ExitCode
from specchat.config.settings import UserSettings
from specchat.config.tables import ThemeFile
from specchat.engine.protocol.requests import Generate
from specchat.engine.strategies import STRATEGIES
from tests.cli.conftest import Run, configure
from tests.fake import FakeEngine

COMMANDS = (
    "ask",
    "chats",
    "check",
    "completion",
    "config",
    "convert",
    "doctor",
    "models",
    "paths",
    "recommend",
    "tune",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_explains_itself(run: Run, command: str, flag: str) -> None:
    result = run(command, flag)
    assert result.exit_code == 0
    assert "Options:" in result.stdout


def test_help_names_every_command_and_exit_code(run: Run) -> None:
    text = run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", text, re.MULTILINE)
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ +{int(code)}  {re.escape(meaning)}$", text, re.MULTILINE)


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").stdout == f"specchat {__version__}\n"


def test_every_exit_code_is_explained_in_the_docs() -> None:
    assert set(MEANINGS) == set(ExitCode)
    assert set(BY_KIND.values()) <= set(ExitCode)
    docs = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", docs, re.MULTILINE)
    assert rows == [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]


def test_every_setting_and_its_variable_is_explained_in_the_docs(run: Run) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(SPECCHAT_\w+)` )?\|", docs, re.MULTILINE))
    assert set(rows) == {field.name for field in fields(UserSettings)}
    text = run("--help").stdout + run("engine", "--help").stdout
    for variable in rows.values():
        assert variable in text


def test_an_unknown_command_is_answered_with_the_nearest(run: Run) -> None:
    result = run("aks")
    assert result.exit_code == ExitCode.USAGE
    assert "ask" in result.stderr


def test_options_in_front_of_a_command_hold_for_it(
    run: Run, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_STRATEGY", "swift")
    before = ("--top-k", "3", "--presence-penalty", "-1", "--stop", "a b", "--stop", "--", "--strategy", "plain")
    assert run(*before, "ask", "--top-k", "4", "--stop", "c", "hello").exit_code == 0
    (request,) = [request for request in engines[0].requests if isinstance(request, Generate)]
    assert (request.sampling.top_k, request.sampling.presence_penalty) == (4, -1)
    assert request.limits.stop == ("a b", "--", "c")
    assert request.speculation.strategy == "plain"
    assert run("--pair", "nope", "ask", "hello").exit_code == ExitCode.UNUSABLE


@pytest.mark.parametrize("option", ["--plain", "--theme=ink"])
def test_an_option_that_the_command_does_not_have_is_refused(run: Run, option: str) -> None:
    result = run(option, "ask", "hello")
    assert result.exit_code == ExitCode.USAGE
    assert f"{option.partition('=')[0]} does not go with ask" in result.stderr


@pytest.mark.parametrize("arguments", [["--strategy", "\x1b]52;c;\x07x"], ["bench", "--json", "/\x1b]0;\x07/x"]])
def test_control_codes_of_arguments_are_not_printed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["specchat", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "␛]" in told
    assert not {"\x1b", "\x07"} & set(told)


WITHOUT_HOME = {
    **dict.fromkeys(("models", "paths", "doctor", "config schema models", "completion bash", "ask hi", "--plain"), 0),
    **dict.fromkeys(
        ("ask --save hi", "ask --continue hi", "--plain --continue", "chats list", "chats export --all"), 3
    ),
}


@pytest.mark.parametrize("line", WITHOUT_HOME)
@pytest.mark.usefixtures("engines")
def test_a_home_that_cannot_be_made_is_told_where_it_is_needed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "file" / "home"))
    result = run(*line.split(), input="hi\n")
    assert result.exit_code == WITHOUT_HOME[line], result.exception
    if result.exit_code or line == "--plain":
        assert f"{tmp_path}/file/home/data cannot be made" in result.stderr


def test_without_a_terminal_the_app_is_refused(run: Run) -> None:
    result = run()
    assert result.exit_code == ExitCode.NO_TERMINAL
    assert "specchat ask" in result.stderr


def test_models_says_the_default_and_what_each_is(run: Run, home: Path) -> None:
    configure(home, models='schema = 1\ndefault = "mine"\n[[pair]]\nid = "mine"\ntarget.path = "/t"\n')
    lines = run("models").stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("* ")][:1] == ["mine"]
    assert lines == run("models", "list").stdout.splitlines()
    listed = json.loads(run("models", "--json").stdout)
    assert listed["default"] == "mine"
    pairs = {pair["id"]: pair for pair in listed["models"]}
    assert pairs["mine"]["target"] == "/t"
    assert pairs["mine"]["reason"] == "There is no folder /t."
    assert (pairs["qwen3-8b"]["target_quant"], pairs["qwen3-8b"]["draft_quant"]) == ("nf4", None)
    needs = {"vram_gib": 7.9, "ram_gib": 11.9, "disk_gib": 16.4, "experts_gib": None, "step_gib": None}
    assert pairs["qwen3-8b"]["requires"] == needs
    assert (pairs["qwen3-8b"]["sampling"]["temperature"], pairs["qwen3-8b"]["sampling_from"]) == (0.6, "models.toml")


def test_models_reads_the_named_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    other.write_text('schema = 1\n[[pair]]\nid = "mine"\nname = "a\\u001b[2Jb\\nc"\ntarget.path = "/t"\n')
    assert "a␛[2Jb c" in run("models", "--models", str(other)).stdout
    monkeypatch.setenv("SPECCHAT_MODELS_FILE", str(other))
    assert "mine" in run("models").stdout
    result = run("models", "--models", str(tmp_path / "nowhere.toml"))
    assert result.exit_code == ExitCode.UNUSABLE
    assert "nowhere.toml does not exist" in result.stderr


def test_paths_are_shown_and_not_made(run: Run, home: Path) -> None:
    shown = json.loads(run("paths", "--json").stdout)
    assert shown["models"] == str(home / "config" / "models.toml")
    assert Path(shown["shipped_models"]).exists()
    assert str(home / "state" / "engine.log") in run("paths").stdout
    assert not home.exists()


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("settings", {field.name for field in fields(UserSettings)}),
        ("models", {"schema", "default", "pair"}),
        ("theme", set(ThemeFile.model_fields)),
    ],
)
def test_schemas_of_files_are_printed(run: Run, file: str, keys: set[str]) -> None:
    schema = json.loads(run("config", "schema", file).stdout)
    assert set(schema["properties"]) == keys
    assert schema["additionalProperties"] is False
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_the_schema_of_settings_names_the_strategies(run: Run) -> None:
    strategy = json.loads(run("config", "schema", "settings").stdout)["properties"]["strategy"]
    assert strategy["anyOf"][0] == {"enum": list(STRATEGIES), "type": "string"}


@pytest.mark.parametrize("command", [("paths",), ("chats", "list"), ("ask", "hi")])
def test_the_home_of_nobody_is_told(run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    monkeypatch.setenv("SPECCHAT_HOME", "~nobody-here/x")
    result = run(*command)
    assert result.exit_code == ExitCode.UNUSABLE
    assert result.stderr.startswith("Error: SPECCHAT_HOME is ~nobody-here/x")


def test_a_home_of_too_long_a_name_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / ("x" * 300)))
    result = run("doctor")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "cannot be read (File name too long)" in result.stdout
    assert run("chats", "list").exit_code == ExitCode.UNUSABLE
