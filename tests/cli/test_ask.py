"""`specchat ask` with a scripted engine: what it asks for, writes and refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from specchat.cli.exit_codes import BY_KIND, ExitCode
from specchat.config.catalog import folder_source, local_pair
from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.events import Event, Finished, FinishReason, Started
from specchat.engine.protocol.options import Grammar, Message, Picture, Sampling, Speculation
from specchat.engine.protocol.pair_info import PairServer
from specchat.engine.protocol.requests import Generate, Load
from tests import fake
from tests.cli.conftest import REPLIES, Run, configure
from tests.drawn import drawn
from tests.fake import FakeEngine
from tests.parts import changed


def asked(engines: list[FakeEngine]) -> Generate:
    return next(request for request in engines[0].requests if isinstance(request, Generate))


def test_only_the_text_goes_to_standard_output(run: Run, engines: list[FakeEngine]) -> None:
    result = run("ask", "hello", "there")
    assert result.exit_code == 0
    assert result.stdout == f"{REPLIES[0]}\n"
    assert result.stderr == ""
    assert asked(engines).messages == (Message("user", "hello there"),)
    assert not engines[0].alive


def test_what_a_pair_does_not_get_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    info = changed(fake.INFO, warning="It drafts otherwise.")
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: FakeEngine(REPLIES, info=info))
    assert run("ask", "hello").stderr == "It drafts otherwise.\n"
    assert run("--plain", input="hello").stderr == "It drafts otherwise.\n"


def test_what_is_piped_in_is_added(run: Run, engines: list[FakeEngine]) -> None:
    run("ask", "Summarise:", input="one\n\ntwo é\n")
    assert asked(engines).messages[-1].content == "Summarise:\n\none\n\ntwo é"


def test_a_byte_order_mark_is_not_asked(run: Run, engines: list[FakeEngine]) -> None:
    run("ask", input="\ufeffone\n")
    assert asked(engines).messages[-1].content == "one"


def test_pictures_go_along(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [drawn("PNG"), drawn("JPEG")]
    for number, each in enumerate(data):
        (tmp_path / f"{number}").write_bytes(each)
    images = [word for number in range(2) for word in ("--image", str(tmp_path / f"{number}"))]
    for sees, code in ((False, ExitCode.USAGE), (True, 0)):
        engine = FakeEngine(REPLIES, info=replace(fake.INFO, sees=sees))
        monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_, made=engine: made)
        result = run("ask", *images, "What?")
        assert (result.exit_code, "reads no pictures" in result.stderr) == (code, not sees)
    assert asked([engine]).messages == (Message("user", "What?", pictures=tuple(map(Picture, data))),)


@pytest.mark.parametrize(
    ("name", "words"), [("none", "cannot be read"), (".", "is a folder"), ("text", "is no picture"), ("cut", "read (")]
)
def test_a_picture_that_cannot_be_sent(name: str, words: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a fox")
    (tmp_path / "cut").write_bytes(drawn("PNG")[:60])
    result = run("ask", "--image", str(tmp_path / name), "What?")
    assert (result.exit_code, words in result.stderr, result.stdout) == (ExitCode.USAGE, True, "")


def test_files_are_added_in_order(run: Run, engines: list[FakeEngine], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b").write_text("```")
    files = [word for name in ("a.py", "b") for word in ("--file", str(tmp_path / name))]
    assert run("ask", *files, "Why?", input="piped\n").exit_code == 0
    a, b = tmp_path / "a.py", tmp_path / "b"
    expected = f"Why?\n\npiped\n\nFile {a}:\n```py\nx = 1\n```\n\nFile {b}:\n````\n```\n````"
    assert asked(engines).messages[-1].content == expected


def test_a_file_alone_is_enough(run: Run, engines: list[FakeEngine], tmp_path: Path) -> None:
    (tmp_path / "a").write_text("What is this?")
    assert run("ask", "--file", str(tmp_path / "a")).exit_code == 0
    assert "What is this?" in asked(engines).messages[-1].content


def test_a_file_that_cannot_be_sent_is_told_before_an_engine_starts(
    run: Run, engines: list[FakeEngine], tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"a\0b")
    result = run("ask", "--file", str(tmp_path / "a"), "hello")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert "binary files cannot be attached, only text" in result.stderr
    assert engines == []


def test_a_schema_holds_the_answer(run: Run, engines: list[FakeEngine], tmp_path: Path) -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    (tmp_path / "a.json").write_text(f"\ufeff{schema}", encoding="utf-8")
    result = run("ask", "--schema", str(tmp_path / "a.json"), "hello")
    assert result.stdout == f"{REPLIES[0]}\n"
    assert asked(engines).grammar == Grammar("json_schema", schema)


def ended(text: str, reason: FinishReason) -> list[Event]:
    """A reply that ends for this reason."""
    finished = Finished(1, reason, text, (1, 2), fake.stats(fake.steps(text), 1, 0.0))
    return [Started(1, 1, 0, 0, Speculation()), *fake.steps(text), finished]


CUT = "Error: The answer was cut: it is the beginning of a JSON text, not all of it."


@pytest.mark.rotated(3)
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("goes_on", ["--save", "--continue"])
@pytest.mark.parametrize(
    ("answer", "reason", "server", "code", "told"),
    [
        ('{"a": 1}', "stop", "Box", ExitCode.OK, ""),
        ("Well, a is 1.", "stop", "Box", ExitCode.SERVER, "Error: The server does not hold to the schema"),
        ("Well, a", "length", "Box", ExitCode.CUT, CUT),
        ('{"a"', "stop", "", ExitCode.CUT, f"{CUT}\n"),
        ('{"a"', "length", "", ExitCode.CUT, f"{CUT} Allow more with --max-tokens.\n"),
        ('{"a"', "context", "", ExitCode.CUT, f"The context is full: the reply ends here.\n{CUT}\n"),
        ('{"a": 1}', "length", "", ExitCode.OK, ""),
        ("12", "length", "", ExitCode.CUT, CUT),
        ("12", "stop", "", ExitCode.OK, ""),
    ],
)
def test_an_answer_that_is_no_json_is_not_passed_over(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answer: str,
    reason: FinishReason,
    server: str,
    code: ExitCode,
    told: str,
    goes_on: str,
    as_json: bool,
) -> None:
    engine = FakeEngine(
        (*["One."] * (goes_on == "--continue"), ended(answer, reason)),
        info=changed(fake.INFO, server=PairServer(server)),
    )
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: engine)
    if goes_on == "--continue":
        run("ask", "hi")
    (tmp_path / "a.json").write_text("{}")
    result = run("ask", goes_on, *["--json"] * as_json, "--schema", str(tmp_path / "a.json"), "hello")
    assert result.exit_code == code
    assert (json.loads(result.stdout)["text"] if as_json else result.stdout.rstrip("\n")) == answer
    assert result.stderr.startswith(told)
    assert bool(result.stderr) == bool(told)


def test_messages_that_are_left_out_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(("One.", "Two.", "Three."), info=replace(fake.INFO, context=8))
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: engine)
    told = [run("ask", how, "--json", "a b c d") for how in ("--save", "--continue", "--continue")]
    assert [json.loads(one.stdout)["left_out"] for one in told] == [0, 2, 4]
    words = "earlier messages did not fit the context and were left out.\n"
    assert [one.stderr for one in told] == ["", f"2 {words}", f"4 {words}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "The JSON schema cannot be used: Expecting property name"),
        (b'{"type": "nope"}', "The JSON schema cannot be used: Invalid type: nope."),
        (b"\xff", "is not UTF-8 text (byte 0)."),
        (None, "cannot be read (No such file or directory)"),
        (b"[" * 1_200_000, "it has more than 1024 KiB"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told_before_an_engine_starts(
    run: Run, engines: list[FakeEngine], tmp_path: Path, text: bytes | None, words: str
) -> None:
    if text is not None:
        (tmp_path / "a.json").write_bytes(text)
    result = run("ask", "--schema", str(tmp_path / "a.json"), "hello")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert f"{tmp_path / 'a.json'}" in result.stderr
    assert words in result.stderr
    assert engines == []


def test_piped_text_alone_is_enough(run: Run, engines: list[FakeEngine]) -> None:
    run("ask", input="one\n")
    assert asked(engines).messages[-1].content == "one"


@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_asked_is_refused(run: Run, engines: list[FakeEngine], text: str) -> None:
    result = run("ask", input=text)
    assert result.exit_code == ExitCode.USAGE
    assert "Nothing was asked" in result.stderr
    assert engines == []


@pytest.mark.parametrize("command", ["ask", "--plain"])
def test_other_encodings_are_refused(run: Run, engines: list[FakeEngine], command: str) -> None:
    result = run(command, input="naïve".encode("latin-1"))
    assert result.exit_code == ExitCode.USAGE
    assert "Standard input is not UTF-8 text" in result.stderr
    assert ("(byte 2)" in result.stderr) == (command == "ask")
    assert not any(isinstance(request, Generate) for engine in engines for request in engine.requests)


@pytest.mark.usefixtures("engines")
def test_json_is_one_object_with_the_fields_names(run: Run) -> None:
    result = run("ask", "--json", "--seed", "7", "--strategy", "lookup", "hello")
    answer = json.loads(result.stdout)
    assert set(answer) == {
        "text",
        "reasoning",
        "token_ids",
        "left_out",
        "finish_reason",
        "pair",
        "strategy",
        "seed",
        "chat",
        "stats",
    }
    assert (answer["text"], answer["reasoning"]) == (REPLIES[0], None)
    assert (answer["finish_reason"], answer["pair"]) == ("stop", "demo")
    assert (answer["strategy"], answer["seed"]) == ("lookup", 7)
    assert len(answer["token_ids"]) == answer["stats"]["completion_tokens"] > 0
    for name in (
        "mean_acceptance_length",
        "draft_acceptance_rate",
        "tested_acceptance_rate",
        "acceptance_histogram",
        "num_spec_steps",
        "num_draft_tokens",
        "num_accepted_draft_tokens",
        "per_step_accepted",
        "tokens_per_second",
        "speedup_vs_plain",
        "ttft_ms",
    ):
        assert name in answer["stats"]
    assert "\x1b" not in result.stdout
    assert result.stdout.isascii()


def test_every_option_arrives(run: Run, engines: list[FakeEngine]) -> None:
    options = {
        "strategy": "swift",
        "draft-length": "3",
        "acceptance": "ratio",
        "seed": "9007199254740993",
        "temperature": "0.5",
        "top-k": "4",
        "top-p": "0.6",
        "min-p": "0.07",
        "repetition-penalty": "1.1",
        "presence-penalty": "-0.5",
        "frequency-penalty": "0.25",
        "max-tokens": "12",
        "context": "drop-oldest",
        "system": "Be brief.",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    assert run("ask", *arguments, "--stop", "a", "--stop", "\n", "hello").exit_code == 0
    request = asked(engines)
    assert request.speculation == Speculation("swift", 3, "ratio")
    assert request.sampling == Sampling(
        seed=9007199254740993,
        repetition_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        temperature=0.5,
        top_k=4,
        top_p=0.6,
        min_p=0.07,
    )
    assert (request.limits.max_tokens, request.limits.stop) == (12, ("a", "\n"))
    assert request.limits.context == "drop-oldest"
    assert request.messages == (Message("system", "Be brief."), Message("user", "hello"))


def test_what_is_not_asked_for_comes_from_the_pair(run: Run, home: Path, engines: list[FakeEngine]) -> None:
    pair = """
        schema = 1
        default = "mine"
        [[pair]]
        id = "mine"
        target = { path = "t" }
        draft = { path = "d" }
        strategy = "lookup"
        acceptance = "ratio"
        strategies.lookup.length = 6
        strategies.draft.length = 2
        sampling = { temperature = 0.3, top_k = 9 }
    """
    configure(home, models=pair)
    assert run("ask", "--top-k", "2", "hello").exit_code == 0
    request = asked(engines)
    load = engines[0].requests[0]
    assert isinstance(load, Load)
    assert load.pair.id == "mine"
    assert request.speculation == Speculation("lookup", 6, "ratio")
    assert (request.sampling.temperature, request.sampling.top_k) == (0.3, 2)
    engines.clear()
    run("ask", "--strategy", "draft", "hello")
    assert asked(engines).speculation == Speculation("draft", 2, "ratio")


def test_a_seed_is_drawn_and_told(run: Run, engines: list[FakeEngine]) -> None:
    seeds = [json.loads(run("ask", "--json", "hello").stdout)["seed"] for _ in range(3)]
    assert len(set(seeds)) == 3
    assert asked(engines).sampling.seed == seeds[0]


def test_command_line_over_environment_over_file(
    run: Run, home: Path, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seed(*arguments: str) -> int:
        engines.clear()
        assert run("ask", *arguments, "hello").exit_code == 0
        return asked(engines).sampling.seed

    configure(home, config='seed = 1\nstrategy = "plain"\nmax_tokens = 5\nsystem = "Be kind."\n')
    assert seed() == 1
    assert asked(engines).speculation == Speculation("plain", 0)
    assert asked(engines).limits.max_tokens == 5
    assert asked(engines).messages[0] == Message("system", "Be kind.")
    monkeypatch.setenv("SPECCHAT_SEED", "2")
    assert seed() == 2
    assert seed("--seed", "0") == 0
    seed("--system", "")
    assert asked(engines).messages == (Message("user", "hello"),)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder called t where the command runs, and one called d."""
    for name in "td":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("target")
def test_a_preferred_strategy_gives_way_where_the_pair_cannot_have_it(
    run: Run, home: Path, engines: list[FakeEngine]
) -> None:
    configure(home, config='strategy = "draft"\n')
    assert run("ask", "--target", "t", "hello").exit_code == 0
    assert asked(engines).speculation.strategy == "auto"
    pair = local_pair(folder_source(Path("t")), None).id
    for strategy in ("draft", "draft-tree", "cascade"):
        result = run("ask", "--target", "t", "--strategy", strategy, "hello")
        assert result.exit_code == ExitCode.USAGE
        assert f'{strategy} cannot be used with pair "{pair}": this pair has no draft model' in result.stderr


@pytest.mark.usefixtures("target")
def test_heads_are_named_but_for_those_that_a_target_may_bring_along(run: Run, engines: list[FakeEngine]) -> None:
    result = run("ask", "--target", "t", "--strategy", "eagle", "hello")
    assert result.exit_code == ExitCode.USAGE
    assert "--strategy eagle cannot be used" in result.stderr
    assert run("ask", "--target", "t", "--strategy", "mtp", "hello").exit_code == 0
    assert asked(engines).speculation.strategy == "mtp"


@pytest.mark.usefixtures("target")
def test_two_folders_make_a_pair(
    run: Run, engines: list[FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_PAIR", "no-such-pair")
    assert run("ask", "--target", str(tmp_path / "t"), "--draft", str(tmp_path / "d"), "hello").exit_code == 0
    load = engines[0].requests[0]
    assert isinstance(load, Load)
    assert (load.pair.target.path, load.pair.draft and load.pair.draft.path) == (
        str(tmp_path / "t"),
        str(tmp_path / "d"),
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--strategy", "lokup"], 2, 'Did you mean "lookup"?'),
        (["--acceptance", "lossy"], 2, "coupled, ratio, block"),
        (["--sed", "1"], 2, "--seed"),
        (["--draft-length", "16"], 2, "1<=x<=15"),
        (["--seed", "-1"], 2, "--seed"),
        (["--seed", "9223372036854775808"], 2, "--seed"),
        (["--temperature", "nan"], 2, "not a finite number"),
        (["--temperature", "abc"], 2, '"abc" is not a number.'),
        (["--temperature", "11"], 2, "0<=x<=10"),
        (["--top-p", "0"], 2, "0<x<=1"),
        (["--max-tokens", "0"], 2, "x>=1"),
        (["--stop", ""], 2, "cannot be empty"),
        (["--draft", "d"], 2, "--draft goes with --target"),
        (["--target", "t", "--pair", "demo"], 2, "exclude each other"),
        (["--pair", "dmo"], 3, 'There is no pair "dmo". Did you mean "demo"?'),
        (["--models", "/no/such.toml"], 3, "/no/such.toml does not exist"),
    ],
)
def test_wrong_options_are_told_before_an_engine_starts(
    run: Run, engines: list[FakeEngine], arguments: list[str], code: int, words: str
) -> None:
    result = run("ask", *arguments, "hello")
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stdout == ""
    assert engines == []


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"models": "schema = 1\npairs = 3\n"}, 'pairs is not a known key. Did you mean "pair"?'),
        ({"config": 'pair = "dmo"\n'}, 'config.toml: pair: There is no pair "dmo"'),
        ({"config": "them = 3\n"}, 'them is not a known key. Did you mean "theme"?'),
    ],
)
def test_wrong_files_are_told(
    run: Run, home: Path, engines: list[FakeEngine], files: dict[str, str], words: str
) -> None:
    configure(home, **files)
    result = run("ask", "hello")
    assert result.exit_code == ExitCode.UNUSABLE
    assert words in result.stderr
    assert engines == []


def test_a_pair_that_the_environment_names_is_told_with_the_variable(
    run: Run, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_PAIR", "dmo")
    assert 'Error: SPECCHAT_PAIR: There is no pair "dmo"' in run("ask", "hello").stderr
    assert 'Error: There is no pair "dm"' in run("ask", "--pair", "dm", "hello").stderr
    assert engines == []


def test_a_state_folder_that_cannot_be_made_is_no_obstacle(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs: list[Path | None] = []

    def make(_: Path, log: Path | None, *__: object) -> FakeEngine:
        logs.append(log)
        return FakeEngine()

    monkeypatch.setattr("specchat.resident.shared.open_engine", make)
    home.mkdir()
    (home / "state").write_text("in the way")
    assert run("ask", "hello").exit_code == 0
    assert logs == [None]


def test_a_dangling_models_file_is_told(run: Run, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "models.toml").symlink_to("nowhere")
    result = run("ask", "hello")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "models.toml does not exist" in result.stderr


@pytest.mark.parametrize("kind", [kind for kind in get_args(ErrorKind) if kind != "died"])
@pytest.mark.parametrize("when", ["loading", "answering"])
def test_each_kind_of_failure_has_its_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, kind: ErrorKind, when: str
) -> None:
    def make(*_: object) -> FakeEngine:
        engine = FakeEngine(["Once there was a fox who kept a lamp."])
        (engine.fail_load if when == "loading" else engine.fail_reply)(kind, "It \x1b[31mfailed.")
        return engine

    monkeypatch.setattr("specchat.resident.shared.open_engine", make)
    result = run("ask", "hello")
    assert result.exit_code == BY_KIND[kind]
    pair = 'Pair "demo" could not be downloaded: ' if (when, kind) == ("loading", "download") else ""
    assert result.stderr == f"Error: {pair}It ␛[31mfailed.\n"
    assert result.stdout == ("" if when == "loading" else "Once there was a\n")


def test_a_death_keeps_what_was_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mortal(FakeEngine):
        def _next(self):  # type: ignore[no-untyped-def]
            event = super()._next()
            if type(event).__name__ == "Step":
                self.die()
            return event

    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: Mortal(["Once there was a fox who kept."]))
    result = run("ask", "hello")
    assert result.exit_code == ExitCode.DIED
    assert result.stdout == "Once there was a\n"
    assert "killed by SIGKILL" in result.stderr


@pytest.mark.parametrize("command", ["ask", "--plain"])
def test_a_reply_cut_by_the_context_is_told(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr("specchat.resident.shared.open_engine", lambda *_: FakeEngine([ended("One.", "context")]))
    result = run(command, input="hello\n")
    assert (result.exit_code, result.stdout) == (0, "One.\n")
    assert "The context is full" in result.stderr


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_are_newlines(run: Run, engines: list[FakeEngine], tmp_path: Path, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"three{end}four{end}".encode())
    run("ask", "--file", str(tmp_path / "a.txt"), input=f"one{end}two{end}".encode())
    content = asked(engines).messages[-1].content
    assert "\r" not in content
    assert "one\ntwo\n\n" in content
    assert "three\nfour\n" in content


def test_more_than_any_model_reads_is_refused_at_once(run: Run, engines: list[FakeEngine]) -> None:
    for command, text in (
        (("ask", "Why?"), "x" * 4_000_001),
        (("--plain",), "x" * 4_000_001),
        (("--plain",), '"""\n' + "line\n" * 800_000),
        (("--plain",), "line\\\n" * 700_000),
    ):
        result = run(*command, input=text)
        assert result.exit_code == ExitCode.USAGE
        assert result.stderr.endswith("Error: Standard input holds over 4 MB. Give the part of it that matters.\n")
    assert not any(isinstance(request, Generate) for engine in engines for request in engine.requests)
