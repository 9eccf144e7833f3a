"""Every command takes every name of a model, and means the same by it; the next start begins with the last choice."""

import json
from pathlib import Path

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.cli.pairs import declared_pair
from specchat.cli.prepare import prepare
from specchat.cli.wishes import Wishes
from specchat.config.paths import user_paths
from specchat.config.used_pairs import UsedPairs
from specchat.engine.errors import EngineError
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Load
from specchat.serve.generation import Served
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from tests.cli.conftest import Run, configure
from tests.engine.tiny import checkpoint
from tests.fake import FakeEngine
from tests.models.made import gguf, in_cache, no_home, ollama

MAKERS = {"do_sample": True, "temperature": 0.6}
IDS = {
    "demo": "demo",
    "mine": "mine",
    "short": "mine",
    "box": "box",
    "someone/tiny": "someone-tiny",
    "someone-tiny": "someone-tiny",
    "maker/small/m.gguf": "maker-small-m.gguf",
    "tiny:1b": "tiny-1b",
    "own": "own",
}
"""Ids by names: shipped, declared, an alias, on a server, in the hub's cache, of LM Studio and Ollama, a folder."""


@pytest.fixture(autouse=True)
def machine(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with models from everywhere; gives the folder of one."""
    user = tmp_path / "user"
    no_home(monkeypatch, user)
    hub = Hub("http://127.0.0.1:1", user / "hub")
    monkeypatch.setattr("specchat.engine.fetch.source.usual_hub", lambda: hub)
    for folder in (tmp_path / "made", user / "models" / "own", tmp_path / "declared"):
        (checkpoint(folder) / "generation_config.json").write_text(json.dumps(MAKERS))
    in_cache(hub, "someone/tiny", tmp_path / "made")
    gguf(user / ".lmstudio" / "models" / "maker" / "small" / "m.gguf", general__sampling__temp=0.6)
    ollama(user / ".ollama" / "models", "tiny:1b", gguf(tmp_path / "made.gguf"), params={"temperature": 0.6})
    own = f'id = "mine"\naliases = ["short"]\ntarget.path = {json.dumps(str(tmp_path / "declared"))}\n'
    configure(
        home,
        models=f'schema = 1\n[[pair]]\n{own}[[pair]]\nid = "box"\nbackend = "remote"\nurl = "http://127.0.0.1:1"\n',
        config=f"model_folders = [{json.dumps(str(user / 'models'))}]\n",
    )
    return user / "models" / "own"


def loads(engines: list[FakeEngine]) -> list[Load]:
    return [request for engine in engines for request in engine.requests if isinstance(request, Load)]


@pytest.mark.parametrize("name", [name for name in IDS if name != "box"])
@pytest.mark.rotated(2)
def test_every_command_means_the_same_by_a_name(
    run: Run, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    launches: list[Launch] = []
    monkeypatch.setattr(SpecchatApp, "run", lambda app: launches.append(app.launch))
    id_ = IDS[name]
    for arguments in (("ask", "hi", "--save"), ("ask", "--continue", "hi"), ("--plain",)):
        assert run(*arguments, "--pair", name, input="hi\n").exit_code == 0
        assert loads(engines)[-1].pair.id == id_
    assert run("ask", "--continue", "hi").exit_code == 0  # by the chat's own pair
    assert loads(engines)[-1].pair.id == id_
    monkeypatch.setattr("specchat.cli.app._terminal", lambda: True)
    assert len({str(load.pair) for load in loads(engines)}) == 1
    for arguments in (("--chat", "last"), ("--continue",), ("--pair", name)):
        assert run(*arguments).exit_code == 0
        assert str(launches.pop().pair.spec) == str(loads(engines)[-1].pair)
    monkeypatch.setattr("specchat.cli.app._terminal", lambda: False)
    another = "demo" if name == "own" else "own"
    for command in ("/model", "/again"):
        chat = run("--plain", "--pair", another, input=f"/model\nhi\n{command} {name}\nhi\n")
        assert chat.exit_code == 0, chat.stderr
        assert f"{another} is loaded; there are " in chat.stderr
        assert f" {id_}," in chat.stderr.replace(".\n", ",\n")
        assert str(loads(engines)[-1].pair) == str(prepare(Wishes(pair=name)).pair.spec)
    shown = run("models", "show", name, "--json")
    found = json.loads(shown.stdout)
    assert (found["id"], found["sampling"]["temperature"]) == (id_, 0.3 if name == "demo" else 0.6)
    assert id_ in {model["id"] for model in json.loads(run("models", "--json").stdout)["models"]}
    assert prepare(Wishes(pair=name)).pair.sampling.temperature == found["sampling"]["temperature"]


@pytest.mark.usefixtures("engines")
def test_results_are_kept_for_declared_pairs_alone_and_others_are_told_how_to_be(run: Run) -> None:
    for command in (("tune", "draft"), ("tune", "vocabulary"), ("recommend",)):
        refused = run(*command, "own")
        assert refused.exit_code == ExitCode.UNUSABLE, refused.output
        assert "Add it: specchat models add own." in refused.stderr
    assert 'id = "own' in run("models", "add", "own").stdout


OWN_SESSION = (("bench",), ("bench", "verify-cost"), ("check",))
"""Commands that load a pair in their own process, by --pair."""
OF_DECLARED = (
    ("recommend",),
    ("tune", "heads", "--family", "medusa"),
    ("tune", "swift"),
    ("tune", "exit"),
)
"""Those that take the name of a declared pair."""


@pytest.mark.parametrize("name", IDS)
@pytest.mark.rotated(2)
@pytest.mark.usefixtures("engines")
def test_what_measures_serves_tunes_and_writes_takes_the_same_pair(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    expected = prepare(Wishes(pair=name)).pair
    target = str(expected.spec.target)
    seen: list[tuple[str, str]] = []

    def load(pair: PairSpec, *_: object) -> None:
        seen.append((pair.id, str(pair.target)))
        raise EngineError("config", "this is enough")

    async def serve(served: Served, *_: object) -> int:
        seen.append((served.pair.id, str(served.pair.spec.target)))
        assert served.usual.sampling == expected.sampling
        return 0

    monkeypatch.setattr("specchat.engine.loading.load", load)
    monkeypatch.setattr("specchat.serve.listening.serve", serve)
    commands = [(*command, "--pair", name) for command in OWN_SESSION]
    commands += [(*command, name) for command in OF_DECLARED if expected.declared]
    if name == "box":
        commands = [OWN_SESSION[0] + ("--pair", name)]
        assert "runs on a server" in run("recommend", name).stderr
    for command in (*commands, ("serve", "--port", "0", "--pair", name)):
        result = run(*command)
        assert seen == [(IDS[name], target)], (command, result.output)
        seen.clear()
    assert f"{IDS[name]}: {expected.name}" in run("doctor", "--pair", name).stdout
    engine = "llama.cpp" if expected.spec.target.is_gguf else "vllm"
    served = run("serve-command", name, "--engine", engine)
    assert (expected.spec.target.label in served.stdout) == (name != "box"), served.output


FOUND = ("someone/tiny", "someone-tiny", "maker/small/m.gguf", "tiny:1b", "own")


@pytest.mark.parametrize("name", FOUND)
def test_a_found_model_that_was_added_is_the_declared_pair_by_every_name_that_it_had(
    run: Run, engines: list[FakeEngine], name: str
) -> None:
    assert run("--plain", "--pair", name, input="hi\n").exit_code == 0
    assert run("ask", "--pair", name, "--save", "hi").exit_code == 0
    added = run("models", "add", name)
    assert added.exit_code == 0, added.stderr
    id_ = added.stdout.split('"')[1]
    assert declared_pair(name, None).id == id_
    assert (prepare(Wishes(pair=name)).pair.id, prepare(Wishes()).pair.id) == (id_, id_)
    assert prepare(Wishes()).again
    assert run("ask", "--continue", "hi").exit_code == 0
    assert loads(engines)[-1].pair.id == id_
    assert json.loads(run("models", "show", name, "--json").stdout)["id"] == id_
    listed = json.loads(run("models", "--json").stdout)
    assert listed["default"] == id_
    assert [model["id"] for model in listed["models"]].count(id_) == 1
    again = run("models", "add", name)
    assert f"Pair {id_} has these models already" in again.stderr


@pytest.mark.usefixtures("engines")
def test_the_last_choice_is_listed_and_added_with_its_draft_though_no_search_finds_it(run: Run, machine: Path) -> None:
    folder = machine.rename(machine.parents[1] / "elsewhere")
    assert run("--plain", "--target", str(folder), "--draft", "someone/tiny", input="hi\n").exit_code == 0
    listed = json.loads(run("models", "--json").stdout)
    last = next(model for model in listed["models"] if model["id"] == listed["default"])
    assert (last["name"], last["declared"]) == ("elsewhere + someone/tiny", False)
    added = run("models", "add", last["id"])
    assert 'name = "elsewhere + tiny"' in added.stdout, added.stderr
    assert 'draft = {repo = "someone/tiny"' in added.stdout


@pytest.mark.parametrize("name", IDS)
def test_a_target_may_be_a_name_and_alone_it_means_its_pair(
    run: Run, engines: list[FakeEngine], machine: Path, name: str
) -> None:
    target = run("ask", "--target", name, "hi")
    paired = run("ask", "--target", name, "--draft", "own", "hi")
    if name == "box":
        for refused in (target, paired):
            assert refused.exit_code == ExitCode.USAGE
            assert "--target: box runs on a server. --pair names it." in refused.stderr
        return
    assert (target.exit_code, paired.exit_code) == (0, 0), target.stderr + paired.stderr
    expected = prepare(Wishes(pair=name)).pair
    alone, both = (load.pair for load in loads(engines)[-2:])
    assert str(alone) == str(expected.spec)
    assert prepare(Wishes(target=Path(name))).pair.sampling == expected.sampling
    assert (str(both.target), both.draft and both.draft.path) == (str(expected.spec.target), str(machine))
    assert both.name == f"{'target' if name == 'demo' else expected.name} + own"


def test_a_target_that_is_no_name_is_told_with_the_nearest(run: Run) -> None:
    wrong = run("ask", "--target", "someone/tinny", "hi")
    assert wrong.exit_code == ExitCode.USAGE
    assert 'no model of that name on this machine. Did you mean "someone/tiny"?' in wrong.stderr


@pytest.mark.parametrize("there", [(2, 3), (1, 3)])
def test_a_target_with_a_missing_part_names_the_part(run: Run, tmp_path: Path, there: tuple[int, ...]) -> None:
    folder = tmp_path / "user" / ".lmstudio" / "models" / "maker" / "split"
    for part in there:
        gguf(folder / f"m-{part:05}-of-00003.gguf")
    gone = ({1, 2, 3} - {*there}).pop()
    refused = run("ask", "--target", "maker/split/m-00001-of-00003.gguf", "hi")
    assert refused.exit_code == ExitCode.UNUSABLE
    assert f"1 of 3 parts are missing (m-{gone:05}-of-00003.gguf). Download all parts." in refused.stderr


def test_a_folder_of_models_names_those_that_are_in_it(run: Run, engines: list[FakeEngine], machine: Path) -> None:
    cache = machine.parents[1] / "hub" / "models--someone--tiny"
    for folder, inner in ((machine.parent, machine), (cache, cache / "snapshots" / ("0" * 40))):
        words = f"{folder}/config.json is missing: the folder is not a complete checkpoint. Perhaps you mean "
        for command in (
            ("models", "show", str(folder)),
            ("models", "add", str(folder)),
            ("bench", "--target", str(folder)),
        ):
            refused = run(*command)
            assert (refused.exit_code, words in refused.stderr) == (ExitCode.UNUSABLE, True), refused.output
            assert f"{inner}." in refused.stderr  # the cache's blobs have names of files here
        assert run("ask", "--target", str(inner), "hi").exit_code == 0
    assert {load.pair.target.path for load in loads(engines)} == {str(machine), str(inner)}


def test_the_last_choice_is_the_next_start_until_a_flag_or_a_setting_names_another(
    run: Run, home: Path, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepare(Wishes()).pair.id == "demo"
    assert run("ask", "--pair", "mine", "hi").exit_code == 0  # one question is no choice
    assert prepare(Wishes()).pair.id == "demo"
    assert run("--plain", "--pair", "own", input="hi\n").exit_code == 0
    assert (prepared := prepare(Wishes())).pair.id == "own"
    assert prepared.again
    assert run("ask", "hi").exit_code == 0
    assert loads(engines)[-1].pair.id == "own"
    assert json.loads(run("models", "--json").stdout)["default"] == "own"
    assert prepare(Wishes(pair="demo")).pair.id == "demo"
    monkeypatch.setenv("SPECCHAT_PAIR", "mine")
    assert run("ask", "hi").exit_code == 0
    assert loads(engines)[-1].pair.id == "mine"
    monkeypatch.delenv("SPECCHAT_PAIR")
    models = home / "config" / "models.toml"
    models.write_text(models.read_text().replace("schema = 1\n", 'schema = 1\ndefault = "mine"\n'))
    assert prepare(Wishes()).pair.id == "mine"
    configure(home, config='pair = "someone/tiny"\n')
    assert prepare(Wishes()).pair.id == "someone-tiny"


def test_an_empty_name_is_no_pair_and_an_empty_variable_none_at_all(
    run: Run, engines: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("ask", "--pair", "own", "hi").exit_code == 0
    for arguments in (("ask", "hi"), ("ask", "--continue", "hi"), ("bench",), ("serve", "--port", "0"), ("--plain",)):
        refused = run(*arguments, "--pair", "", input="hi\n")
        assert (refused.exit_code, 'There is no pair ""' in refused.stderr) == (ExitCode.UNUSABLE, True), arguments
    monkeypatch.setenv("SPECCHAT_PAIR", "")
    assert run("ask", "hi").exit_code == 0
    assert [load.pair.id for load in loads(engines)] == ["own", "demo"]


def test_where_the_last_choice_is_gone_commands_say_so_and_the_app_starts_with_the_default(
    run: Run, machine: Path
) -> None:
    used = UsedPairs(user_paths().used_pairs)
    used.keep(prepare(Wishes(pair="own")).pair, chosen=True)
    machine.rename(machine.with_name("other"))
    refused = run("ask", "hi")
    assert refused.exit_code == ExitCode.UNUSABLE
    assert f"{machine} is not there any more: own cannot be loaded. It was chosen last. --pair or" in refused.stderr
    assert "is not there any more: own cannot be loaded." in run("doctor").stdout
    prepared = prepare(Wishes(), otherwise=True)
    assert (prepared.pair.id, prepared.again) == ("demo", False)
    assert prepared.lost.endswith("It was chosen last; demo is loaded until you choose another.")


def test_nothing_is_kept_of_a_model_whose_question_is_not(run: Run, engines: list[FakeEngine]) -> None:
    assert run("ask", "--no-save", "--pair", "own", "hi").exit_code == 0
    assert engines
    assert not user_paths().used_pairs.exists()


def test_a_cache_may_be_chosen_for_any_pair_of_our_own(run: Run, engines: list[FakeEngine]) -> None:
    for named in (("--pair", "demo"), ("--target", "someone/tiny")):
        assert run("ask", *named, "--cache", "int8", "hi").exit_code == 0
        assert loads(engines)[-1].pair.cache == "int8"
        assert run("ask", *named, "--activations", "int8", "hi").exit_code == 0
        assert loads(engines)[-1].pair.activations == "int8"
    wrong = run("ask", "--pair", "demo", "--cache", "int4", "hi")
    assert wrong.exit_code == ExitCode.USAGE
    assert '"int4" is not one of int8' in wrong.stderr
