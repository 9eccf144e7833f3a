"""Other settings that `specchat recommend` measures, what it writes and what it only suggests, and pairs that suit."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from specchat.bench import bandwidth, race
from specchat.bench.race import ContenderSpeed
from specchat.cli import recommend
from specchat.config.catalog import Pair, Requires, load_catalog
from specchat.engine.hardware import bandwidth as of_memory
from specchat.engine.loading import load
from specchat.engine.loading.beside import load_beside
from specchat.engine.memory.plan import GIB
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import DEFAULT_CONTEXT, ModelSource, PairSpec
from specchat.engine.strategies import STRATEGIES
from specchat.engine.text.draft_vocabulary import write
from specchat.engine.text.tokenizer import Tokenizer
from specchat.models.machine import FreeMemory
from specchat.models.speed import SpeedEstimate
from specchat.recommend import search
from specchat.recommend.decision import decided
from specchat.recommend.machine import suggestion
from specchat.recommend.search import Recommendations, RecommendSearch, VariantSpeed, contenders
from specchat.recommend.variants import variants
from specchat.tune.registry import give_back, register, use
from specchat.tune.shelf import Tuned
from tests.cli.conftest import Run, configure, own, prompts_file
from tests.engine.conftest import unmeasured as unmeasured
from tests.engine.tiny import checkpoint

WORDS = ("abc", "to be", "say it", "a b a b", "no", "xyz")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pair")
    return checkpoint(root / "target", num_key_value_heads=2), checkpoint(root / "draft", seed=4, num_hidden_layers=2)


@pytest.fixture(autouse=True)
def toml(folders: tuple[Path, Path], home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's models.toml."""
    target, draft = folders
    table = (
        f'[[pair]]\nid = "tiny" # small\ntarget = {{ path = "{target}", device = "cpu" }}\n'
        f'draft = {{ path = "{draft}" }} # the small one\n'
    )
    configure(home, models=f'schema = 1\ndefault = "tiny"\n{table}')
    monkeypatch.setattr(race, "TOKENS", 12)
    monkeypatch.setattr(search, "LEAST_S", float("-inf"))
    monkeypatch.setattr(search, "SUGGESTING_S", 0.0)
    return own(home)


@pytest.fixture
def pair(toml: Path) -> Pair:
    return load_catalog(toml).find("tiny")


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    return ("recommend", "tiny", "--prompts", str(prompts_file(tmp_path, WORDS)), "--minutes", "0.02")


@pytest.fixture
def tuned(folders: tuple[Path, Path], home: Path, toml: Path) -> Tuned:
    """A draft on the shelf that is not in use."""
    made = Tuned("tiny-draft", "draft", "tiny", 1.0, "prompts")
    laid = register(made, folders[1], home / "data" / "tuned", toml)
    give_back(laid, toml)
    return laid


def speed(times: float, low: float = 0.0, name: str = "draft x5") -> ContenderSpeed:
    return ContenderSpeed(name, times, low or times - 0.05, times + 0.05, 16)


def found(*others: VariantSpeed) -> Recommendations:
    return Recommendations([speed(2.0), speed(1.9, name="auto")], list(others))


def setting(pair: Pair, name: str, times: float, low: float = 0.0, case: str = "draft x5") -> VariantSpeed:
    every = {one.name: one for one in variants(pair, 0, Path("none"), Path("none"))}
    return VariantSpeed(every[name], case, speed(times, low))


def test_every_setting_is_measured_on_the_pair_s_own_text(
    run: Run, toml: Path, command: tuple[str, ...], tuned: Tuned
) -> None:
    before = toml.read_bytes()
    result = run(*command, "--dry-run", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["kind"] == "result"
    assert report["left_out"] == {}
    measured = {name for name, *_ in report["others"]}
    for variant in ("tiny-draft", "draft in int8", "draft in nf4"):
        assert any(name.startswith("draft") and name.endswith(f", {variant}") for name in measured)
    plain = {name for name in measured if name.startswith("plain, ")}
    assert plain == {"plain, target in int8", "plain, target in nf4"}
    assert {same for name, *_, same in report["others"] if ", target" not in name} == {True}
    assert {same for name, *_, same in report["others"] if ", target" in name} == {False}
    assert all(prompts >= 1 for _, _, _, _, prompts, _ in report["others"])
    assert report["written"] is False
    assert toml.read_bytes() == before
    assert tuned.folder.exists()


def test_settings_that_a_pair_has_are_not_tried(pair: Pair, tuned: Tuned, toml: Path, home: Path) -> None:
    def names(of: Pair, gpus: int = 0) -> list[str]:
        return [one.name for one in variants(of, gpus, home / "data" / "tuned", toml)]

    usual = ["draft in int8", "draft in nf4", "target in int8", "target in nf4"]
    assert names(pair) == ["tiny-draft", *usual]
    assert names(pair, 1) == ["tiny-draft", *usual[:2], "draft on the CPU", *usual[2:]]
    assert names(pair, 2) == ["tiny-draft", *usual[:2], "draft on the CPU", "draft on a second GPU", *usual[2:]]
    assert pair.spec.draft is not None
    bound = replace(pair, spec=replace(pair.spec, target=replace(pair.spec.target, device="cuda")))
    assert "target on both GPUs" in names(bound, 2)
    assert "target on both GPUs" not in names(bound, 1)
    eight = replace(pair.spec, draft=replace(pair.spec.draft, quant="int8", device="cpu"))
    assert names(replace(pair, spec=eight), 2)[1:4] == ["draft as stored", "draft in nf4", "draft on a second GPU"]
    assert names(replace(pair, spec=replace(pair.spec, draft=None))) == usual[2:]
    assert names(replace(pair, spec=replace(pair.spec, backend="gguf"))) == []
    use(tuned, toml)
    assert names(pair) == usual
    toml.with_name("tiny.vocabulary.json").touch()
    assert names(pair) == ["draft vocabulary", *usual]
    assert names(replace(pair, spec=replace(pair.spec, draft_vocabulary="another"))) == usual


def test_a_draft_vocabulary_that_was_counted_is_tried_and_written(
    run: Run, toml: Path, pair: Pair, command: tuple[str, ...], folders: tuple[Path, Path]
) -> None:
    tokenizer = Tokenizer.read(folders[0])
    write(toml.with_name("tiny.vocabulary.json"), tokenizer, range(tokenizer.size // 2, tokenizer.size))
    result = run(*command, "--dry-run", "--json")
    measured = [name for name, *_ in json.loads(result.stdout.splitlines()[-1])["others"]]
    assert any(name.startswith("draft") and name.endswith(", draft vocabulary") for name in measured)
    (one,) = (one for one in variants(pair, 0, Path("none"), toml) if one.key == "draft_vocabulary")
    affected = {name for name in STRATEGIES if one.affects(name)}
    assert affected == {"mtp", *(name for name, of in STRATEGIES.items() if of.needs_draft)}
    one.write(toml)
    assert load_catalog(toml).find("tiny").spec.draft_vocabulary == str(toml.with_name("tiny.vocabulary.json"))
    assert 'id = "tiny" # small' in toml.read_text()
    assert one.described() == {
        "name": "draft vocabulary",
        "key": "draft_vocabulary",
        "value": "tiny.vocabulary.json",
    }


@pytest.mark.parametrize(("low", "taken"), [(1.05, True), (0.96, True), (0.94, False)])
def test_a_setting_is_taken_only_if_it_surely_costs_little(pair: Pair, low: float, taken: bool) -> None:
    decision = decided(pair, found(setting(pair, "draft in int8", 1.2, low, "draft x10")))
    assert decision.choice == ("draft", 10 if taken else 5)
    assert (decision.variant is not None) == taken
    words = "draft x10 with draft in int8 writes 2.40 times" if taken else "draft x5 writes 2.00 times"
    assert decision.lines[0].startswith(words)


def test_another_text_is_suggested_only_beyond_the_interval(pair: Pair) -> None:
    assert decided(pair, found(setting(pair, "target in nf4", 1.2, 0.99))).suggested is None
    assert decided(pair, found(setting(pair, "target in nf4", 1.2, 1.01))).suggested is not None


def test_settings_of_the_draft_share_the_target_and_take_no_more_than_the_pair(
    pair: Pair, tuned: Tuned, toml: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = load(pair.spec, lambda _: None)
    chats = [(Message("user", word),) for word in WORDS]
    every = {one.name: one for one in variants(pair, 0, home / "data" / "tuned", toml)}
    groups: list[list[str]] = []
    assert tuned.id in every

    def kept(*given: object) -> None:
        groups.append([one.name for one in given[4]])  # type: ignore[attr-defined]

    monkeypatch.setattr(RecommendSearch, "_race", kept)
    RecommendSearch(pair, session, chats, lambda *_: None).run(0.1, [*every.values()], lambda: False)
    assert groups == [["tiny-draft", "draft in int8", "draft in nf4"], ["target in int8"], ["target in nf4"]]
    for name in groups[0]:
        other = load_beside(session, pair.spec, every[name].spec, lambda _: None)
        assert other.target.model is session.target.model
        assert other.runner.draft is not session.runner.draft
    apart = load_beside(session, pair.spec, every["target in int8"].spec, lambda _: None)
    assert apart.target.model is not session.target.model


@pytest.mark.usefixtures("unmeasured")
def test_pairs_that_are_measured_have_the_usual_context(tmp_path: Path) -> None:
    """One as long as fits would leave no memory to what is measured or trained beside."""
    source = ModelSource(path=str(checkpoint(tmp_path, max_position_embeddings=20_000)), device="cpu")
    pair = PairSpec("p", "P", source, long_context=True)
    session = load(pair, lambda _: None)
    assert session.info.context == DEFAULT_CONTEXT
    assert load_beside(session, pair, replace(pair, draft=source), lambda _: None).target.model is session.target.model
    assert load(pair, lambda _: None, lambda: None).info.context > 19_000


def test_what_changes_the_text_is_never_taken(pair: Pair) -> None:
    decision = decided(pair, found(setting(pair, "target in nf4", 1.8), setting(pair, "draft in int8", 1.1, 1.05)))
    assert decision.variant is not None
    assert decision.variant.variant.name == "draft in int8"
    assert decision.suggested is not None
    assert decision.suggested.variant.name == "target in nf4"
    slow = Recommendations([speed(0.9)], [setting(pair, "target in nf4", 1.8)])
    assert decided(pair, slow).choice is None
    assert decided(pair, slow).suggested is not None


def given(monkeypatch: pytest.MonkeyPatch, measured: Recommendations) -> None:
    monkeypatch.setattr(RecommendSearch, "run", lambda *_: measured)


def test_a_setting_is_written_with_its_strategy(
    run: Run, toml: Path, command: tuple[str, ...], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, found(setting(pair, "draft in int8", 1.2, 1.1)))
    result = run(*command)
    assert f'Pair "tiny" in {toml} now has it.' in result.stdout
    now = load_catalog(toml).find("tiny")
    assert now.spec.draft is not None
    assert (now.strategy, now.draft_length, now.spec.draft.quant) == ("draft", 5, "int8")
    assert "# the small one\n" in toml.read_text()


def test_a_tuned_draft_is_written(
    run: Run, toml: Path, command: tuple[str, ...], pair: Pair, tuned: Tuned, home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (variant, *_) = variants(pair, 0, home / "data" / "tuned", toml)
    given(monkeypatch, found(VariantSpeed(variant, "draft x5", speed(1.2))))
    assert run(*command).exit_code == 0
    now = load_catalog(toml).find("tiny").spec.draft
    assert now is not None
    assert now.path == str(tuned.folder)


@pytest.mark.parametrize("answer", [None, False, True])
def test_another_text_takes_a_yes(
    run: Run, toml: Path, command: tuple[str, ...], pair: Pair, answer: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, found(setting(pair, "target in int8", 1.5)))
    asked: list[str] = []
    monkeypatch.setattr(recommend, "can_ask", lambda: answer is not None)
    monkeypatch.setattr(click, "confirm", lambda words, **_: asked.append(words) or answer)
    dry = run(*command, "--dry-run")
    assert not asked
    assert "target in int8" in dry.stdout
    result = run(*command)
    now = load_catalog(toml).find("tiny").spec.target
    assert now.quant == ("int8" if answer else None)
    assert ("now has its target in int8" in result.stdout) == bool(answer)
    if answer is not None:
        assert "The text would be another" in asked[0]
    if not answer:
        assert f'To have it, set quant = "int8" of the target of "tiny" in {toml}.' in result.stdout


def test_what_cannot_be_loaded_is_left_out(run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.engine.hardware.free_memory.free_memory", lambda: 1)
    result = run(*command, "--dry-run")
    assert "Not measured: draft in int8 (memory does not hold it beside the pair)." in result.stdout


def test_the_checks_have_figures_of_this_machine(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_memory, "MEBIBYTES", 1)
    monkeypatch.setattr(of_memory, "SECONDS", 0.0)
    result = run(*command, "--dry-run", "--decide")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    first = lines.index("Before drafting:")
    assert [line[:2] for line in lines[first + 1 : first + 6]] == ["1.", "2.", "3.", "4.", "5."]
    assert "Then: " in result.stdout


def test_without_a_pair_those_that_suit_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "read_bandwidth", lambda _: 20e9)
    result = run("recommend")
    assert result.exit_code == 0
    assert "the processor reads 20 GB/s" in result.stdout
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if "CPU" in line}
    assert rows["demo"][1:3] == ["CPU", "here"]
    assert rows["tiny"][1:3] == ["CPU", "here"]
    assert "Begin with " in result.stdout


def test_pairs_that_take_two_gpus_are_named_with_what_to_expect(
    run: Run, toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bytes of a step, as on one GPU: a token passes through both in turn."""
    monkeypatch.setattr(bandwidth, "read_bandwidth", lambda place: {"cuda": 400e9, "cpu": 20e9}[place])
    monkeypatch.setattr(
        "specchat.models.machine.this_machine", lambda: FreeMemory(4 * GIB, 64 * GIB, threads=1, second=4 * GIB)
    )

    def row(device: str) -> list[str]:
        toml.write_text(toml.read_text().replace('device = "cpu"', device).replace('device = "both-gpus"', device))
        return next(line.split() for line in run("recommend").stdout.splitlines() if line.startswith("tiny "))

    both, one = row('device = "both-gpus"'), row('device = "cuda"')
    assert both[1:4] == ["2", "GPUs", "here"]
    assert one[1:3] == ["GPU", "here"]
    assert both[4:] == one[3:] != []


def test_the_largest_that_is_fluent_is_suggested() -> None:
    def offer(name: str, gib: float, size: int) -> SimpleNamespace:
        pair = Pair(PairSpec(name, name, None), requires=Requires(vram_gib=gib))  # type: ignore[arg-type]
        return SimpleNamespace(pair=pair, size=size)

    small, big, heavy, slow = offer("s", 4, 3), offer("b", 10, 9), offer("h", 10.5, 30), offer("x", 20, 20)
    rows = [
        (small, SpeedEstimate(60.0, None)),
        (heavy, SpeedEstimate(9.0, 14.0)),
        (big, SpeedEstimate(9.0, 12.0)),
        (slow, SpeedEstimate(3.0, 4.0)),
        (offer("?", 30, 1), None),
    ]
    chosen = suggestion(rows)  # type: ignore[arg-type]
    assert chosen is not None
    assert chosen.pair.id == "b"
    assert suggestion(rows[3:]) is None  # type: ignore[arg-type]


def test_a_strategy_is_first_at_the_length_that_the_pair_has(pair: Pair) -> None:
    session = load(pair.spec, lambda _: None)
    of_it = [one.name for one in contenders(session, replace(pair, lengths={"draft": 8})) if "draft x" in one.name]
    assert of_it == ["draft x8", "draft x4", "draft x5", "draft x15"]


def test_a_setting_is_measured_by_the_fastest_strategies_that_ran(pair: Pair, home: Path, toml: Path) -> None:
    """Lengths of a strategy that was too slow at one never ran."""
    session = load(pair.spec, lambda _: None)
    search = RecommendSearch(pair, session, [(Message("user", word),) for word in WORDS], lambda *_: None)
    every = {one.name: one for one in variants(pair, 0, home / "data" / "tuned", toml)}
    ran = Recommendations([speed(2.0, name="auto"), speed(1.9, name="draft x5"), speed(1.1, name="cascade x8")])
    best = contenders(session, pair)[0]
    cases = search._cases(every["draft in int8"], ran, best)
    assert [*cases] == ["draft x5", "cascade x8"]
