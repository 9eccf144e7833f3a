"""Trained heads for a target on the device: the host's drafts by them, and never another text."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.draft import Copy
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.states import States
from specchat.engine.drafters import eagle as eagle_drafters
from specchat.engine.drafters import medusa as medusa_drafter
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import Skip
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import host_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import HEADED
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, DEVICE, ON_GPU, SHAPE, decoder
from tests.device.test_decoding import PROMPT, SAMPLINGS, write
from tests.engine.published_blocks import dflash, dflash2, dspark, xpress
from tests.engine.published_heads import HIDDEN, eagle, eagle3, kv_mtp, medusa, mtp, peagle
from tests.engine.test_heads_elsewhere import THERE, OneDevice
from tests.engine.tiny import VOCAB, checkpoint

LAYERS = 4
LOOKED_AT = (1, 2, 3, 4)
"""Layers after which one of the heads takes states."""
WRITE: dict[Head, Callable[[Path], Path]] = {
    "medusa": medusa,
    "eagle": eagle,
    "eagle3": partial(eagle3, few=None),
    "mtp": mtp,
    "kv-mtp": partial(kv_mtp, num_attention_heads=2, num_key_value_heads=1, head_dim=32),
    "peagle": partial(peagle, eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
    "dflash": dflash,
    "dflash2": partial(dflash2, best=240),
    "dspark": dspark,
    "xpress": xpress,
}
LENGTHS = (3, 1, 7, 15)
FIRST = ("medusa", "eagle2", "eagle3", "mtp", "kv-mtp", "dflash")
"""Strategies that are tried each time: a chain, trees, a block; the others are like one of them."""
SLACK = 1e-3
ALIKE = not ON_GPU
"""Whether heads have the host's weights, and so its drafts; on a GPU they are rounded to bfloat16."""


@pytest.fixture(autouse=True)
def _whole_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (medusa_drafter, eagle_drafters):
        monkeypatch.setattr(module, "LEAST", 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = SHAPE | {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS}
    return checkpoint(tmp_path_factory.mktemp("headed") / "target", **shape)


@pytest.fixture(scope="module")
def found(folder: Path) -> FoundHeads:
    """The layer for multi-token prediction has a draft vocabulary; the others that use the target's head have none."""
    files = {head: HeadFiles.open(write(folder.parent / head)) for head, write in WRITE.items()}
    few = replace(Checkpoint.open(folder), drafts=tuple(range(0, VOCAB, 2)))
    return FoundHeads(files | {"mtp": replace(files["mtp"], frequent=few)})


@pytest.fixture(scope="module")
def headed(folder: Path, found: FoundHeads) -> Runner:
    return device_runner(decoder(folder), None, VOCAB, DEVICE, found=found)


@pytest.fixture(scope="module")
def on_host(folder: Path, found: FoundHeads) -> Runner:
    return host_runner(ReferenceDecoder(Checkpoint.open(folder)), None, found=found)


def model(runner: Runner) -> DeviceModel:
    assert isinstance(runner.target.model, DeviceModel)
    return runner.target.model


def steps(
    runner: Runner, drafting: Sequence[tuple[str, int]], sampling: Sampling, acceptance: Acceptance = "coupled"
) -> list[StepOutcome]:
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    for drafter in runner.drafters.values():
        drafter.begin(PROMPT)
    reply = runner.reply(sampling, list(PROMPT), ())
    made = [reply.step(runner.drafters[strategy], length, acceptance) for strategy, length in drafting]
    reply.close()
    return made


def shape(made: Sequence[StepOutcome]) -> list[object]:
    """What depends neither on last bits nor on the order of a tree's nodes."""
    return [(outcome.tokens, drafted(outcome).keys(), len(outcome.path)) for outcome in made]


def drafted(outcome: StepOutcome) -> dict[tuple[int, ...], float | None]:
    """The confidence of each node, by the tokens of its path."""
    paths: list[tuple[int, ...]] = [()]
    for node, token in enumerate(outcome.drafts):
        paths.append((*paths[outcome.parents[node] if outcome.parents else node], token))
    return dict(zip(paths[1:], outcome.confidence, strict=True))


def text(made: Sequence[StepOutcome]) -> list[int]:
    return [token for outcome in made for token in outcome.tokens]


@pytest.fixture(scope="module")
def plain(headed: Runner) -> dict[str, list[int]]:
    return {name: write(headed, "plain", 0, sampling, tokens=4) for name, sampling in SAMPLINGS.items()}


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "strategy",
    [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in HEADED],
)
def test_drafts_are_the_hosts_and_the_text_is_the_plain_one(
    headed: Runner, on_host: Runner, plain: dict[str, list[int]], strategy: str
) -> None:
    """One of the options with each, and a length with each of them: the host tries all with all."""
    at = FIRST.index(strategy) if strategy in FIRST else HEADED.index(strategy)
    name, length = list(zip(SAMPLINGS, LENGTHS, strict=True))[at % len(LENGTHS)]
    ours, theirs = (steps(runner, [(strategy, length)] * 2, SAMPLINGS[name]) for runner in (headed, on_host))
    made = text(ours)
    assert made[:4] == plain[name][: len(made)], (name, length)
    if ALIKE:
        assert shape(ours) == shape(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert drafted(mine) == pytest.approx(drafted(other), rel=1e-2)
    assert max(step.drafted for step in ours) > 0


def test_families_change_between_steps(headed: Runner, on_host: Runner) -> None:
    """What a step ahead had written is no part of what heads look at, nor what was refused."""
    drafting = [("eagle2", 6), ("lookup", 4), ("eagle3", 3), ("plain", 0), ("dflash", 5), ("medusa", 8), ("eagle", 2)]
    ours, theirs = (steps(runner, drafting, SAMPLINGS["sampled"]) for runner in (headed, on_host))
    both = min(len(text(ours)), len(text(theirs)))
    assert text(ours)[:both] == text(theirs)[:both]
    assert shape(ours) == shape(theirs) or not ALIKE


@pytest.mark.parametrize("acceptance", ["ratio", "block"])
def test_a_seed_repeats_a_text_that_depends_on_its_drafts(headed: Runner, acceptance: Acceptance) -> None:
    drafting = [("eagle2", 5), ("dspark", 3)]
    first, second = (steps(headed, drafting, Sampling(seed=3, temperature=1.0), acceptance) for _ in range(2))
    assert shape(first) == shape(second)


def test_auto_has_heads_which_draft_while_the_host_goes_on(headed: Runner, plain: dict[str, list[int]]) -> None:
    assert headed.drafters["auto"].instant
    made = text(steps(headed, [("auto", 4)] * 3, SAMPLINGS["greedy"]))
    assert made[:4] == plain["greedy"][: len(made)]


# States


def test_states_are_the_hosts(headed: Runner, on_host: Runner) -> None:
    """Whose equal transformers'."""
    for runner in (headed, on_host):
        runner.target.keep(0)
        runner.target.begin(PROMPT)
    host, known = on_host.target.model, len(PROMPT) - 1
    assert isinstance(host, CachedDecoder)
    for layer in LOOKED_AT:
        ours, theirs = model(headed).states(layer, 0, known), host.states(layer, 0, known)
        assert (ours.dtype, theirs.std() > 0.3) == (torch.float32, True)
        torch.testing.assert_close(ours.cpu(), theirs, atol=SLACK, rtol=SLACK)


def test_what_the_target_gives_heads_is_the_hosts(headed: Runner, on_host: Runner) -> None:
    host, ours = on_host.target.model, model(headed)
    assert isinstance(host, CachedDecoder)
    hidden = host.embed([5, 70, VOCAB - 1])
    torch.testing.assert_close(ours.embed([5, 70, VOCAB - 1]).cpu(), hidden)
    torch.testing.assert_close(ours.final_norm(hidden.to(DEVICE)).cpu(), host.final_norm(hidden))
    projected = ours.project(hidden.to(DEVICE)).cpu()
    assert projected.shape == (3, ours.vocab)
    torch.testing.assert_close(projected, host.project(hidden), atol=SLACK, rtol=SLACK)


class Tree:
    """Drafts a tree whose second branch goes on as the text does."""

    name, instant = "tree", False

    def __init__(self, right: Sequence[int]) -> None:
        self._right = right

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None: ...
    def forget(self) -> None: ...
    def observe(self, text: Sequence[int], outcome: StepOutcome) -> None: ...

    def propose(self, _: Sequence[int], __: int) -> Copy:
        first, second, third = self._right
        wrong = (first + 1) % VOCAB
        return Copy([wrong, first, second, wrong, third], [0, 0, 2, 2, 3])


def test_the_states_of_a_path_that_stays_are_those_of_a_chain(headed: Runner, plain: dict[str, list[int]]) -> None:
    """Bit for bit, as the entries of the cache."""
    right = plain["greedy"][:3]
    headed.target.keep(0)
    headed.target.begin(PROMPT)
    reply = headed.reply(Sampling(), list(PROMPT), ())
    outcome = reply.step(Tree(right), 5, "coupled")
    reply.close()
    assert outcome.path == (2, 3, 5)
    known = len(headed.target.tokens)
    assert known == len(PROMPT) + 3
    kept = {layer: model(headed).states(layer, 0, known).clone() for layer in LOOKED_AT}
    headed.target.keep(0)
    headed.target.begin([*PROMPT, *right, 0])
    for layer in LOOKED_AT:
        assert torch.equal(model(headed).states(layer, 0, known), kept[layer])


def test_a_trial_of_skipping_leaves_the_states_as_they_were(headed: Runner) -> None:
    headed.target.keep(0)
    headed.target.begin(PROMPT)
    before = model(headed).states(LAYERS, 0, len(PROMPT) - 1).clone()
    headed.target.model.likeliest(PROMPT[2:6], 2, Skip(frozenset({1}), frozenset({2})))
    assert torch.equal(model(headed).states(LAYERS, 0, len(PROMPT) - 1), before)


def test_states_are_kept_in_the_dtype_of_the_model_and_count_as_memory(folder: Path) -> None:
    target = decoder(folder, torch.bfloat16)
    bare = target.memory()
    target.record_states([2, 4])
    target.record_states([2, 3])
    states = target.states
    assert isinstance(states, States)
    assert states.layers == (2, 3, 4)
    assert target.memory() - bare == states.memory() == 3 * target.capacity * HIDDEN * 2
    assert target.capacity >= CONTEXT
    tokens = torch.tensor(PROMPT, dtype=torch.int32, device=DEVICE)
    target.forward(tokens, torch.zeros(1, dtype=torch.int32, device=DEVICE), len(PROMPT))
    host = ReferenceDecoder(Checkpoint.open(folder))
    host.record_states([3])
    host.forward(PROMPT, 0)
    expected = host.states(3, 0, len(PROMPT))
    assert 0 < (states.at(3, 0, len(PROMPT)).cpu() - expected).abs().mean() < 0.05 * expected.std()


def test_states_are_written_without_a_look_at_values() -> None:
    """As in a captured pass: these tensors have none."""
    states = States([0, 2], HIDDEN, CONTEXT, PASS_ROWS, THERE, torch.bfloat16)
    state = VerifyState.create(VOCAB, VERIFY_ROWS, THERE)
    with OneDevice():
        states.put(2, torch.zeros(PASS_ROWS, HIDDEN, device=THERE), state.length, 5)
        states.keep(state, VERIFY_ROWS)
        assert states.at(2, 3, 7).shape == (4, HIDDEN)


def test_preparing_drafts_by_heads_once_and_leaves_nothing(headed: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceExecutor, "capture_verify", lambda _: None)  # the interpreter is slow
    parts: list[str] = []
    headed.prepare(parts.append)
    assert {f"drafting by {strategy}" for strategy in HEADED} <= set(parts)
    assert headed.target.tokens == []
    drafters = [headed.drafters[name] for name in HEADED if name != "medusa"]
    assert all(isinstance(one, DraftModelDrafter) and one.draft.tokens == [] for one in drafters)


def test_heads_count_as_memory(headed: Runner, folder: Path) -> None:
    bare = device_runner(decoder(folder), None, VOCAB, DEVICE)
    weights = sum(files.values for files in (HeadFiles.open(folder.parent / head) for head in WRITE))
    assert headed.memory() - bare.memory() > 2 * weights


def test_a_head_for_another_target_is_refused_and_the_others_draft(folder: Path, tmp_path: Path) -> None:
    files: dict[Head, HeadFiles] = {
        "medusa": HeadFiles.open(medusa(tmp_path / "medusa", hidden=48)),
        "eagle": HeadFiles.open(eagle(tmp_path / "eagle")),
    }
    runner = device_runner(decoder(folder), None, VOCAB, DEVICE, found=FoundHeads(files))
    told = {status.name: status for status in runner.statuses}
    assert told["eagle"].available
    assert "for another target" in told["medusa"].reason
