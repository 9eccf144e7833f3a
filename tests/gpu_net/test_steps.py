"""Whole replies on the device under the sanitiser and poison: nothing is found, and the tokens are those without."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters import draft_model, eagle
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from tests.device import test_recurrent, test_windows
from tests.device.conftest import DEVICE, SHAPE, decoder
from tests.device.test_company import alone, in_company
from tests.device.test_draft_vocabulary import few_on_device
from tests.device.test_families import changes
from tests.engine.published_heads import HIDDEN, eagle3
from tests.engine.tiny import VOCAB, checkpoint, perturbed
from tests.gpu_net.poison import poisoned
from tests.gpu_net.sanitiser import sanitised

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")

PROMPT = [72, 101, 108, 108, 111, 32, 72, 101, 108]
GREEDY = Sampling()
SAMPLED = Sampling(seed=7, temperature=0.9)
FILTERED = Sampling(
    seed=8, temperature=1.1, top_k=30, top_p=0.9, min_p=0.02, repetition_penalty=1.3, logit_bias={5: 2.0}
)
Drafting = list[tuple[str, int]]
"""Strategies and draft lengths, one a step."""

REPLIES: dict[str, tuple[str, Drafting, Sampling, Acceptance]] = {
    "greedy": (
        "bare_pair",
        [("lookup", 3), ("draft", 3), ("draft-tree", 4), ("plain", 0), ("lookahead", 4), ("draft", 1)],
        GREEDY,
        "coupled",
    ),
    "sampled": (
        "headed_pair",
        [("draft-tree", 3), ("eagle3", 2), ("swift", 2), ("early-exit", 2)],
        SAMPLED,
        "coupled",
    ),
    "filters and penalties": ("small_pair", [("draft", 2), ("draft-tree", 3)], FILTERED, "coupled"),
    "windows": ("windowed_pair", [("draft", 3), ("draft-tree", 3), ("plain", 0), ("draft", 2)], SAMPLED, "coupled"),
    "inputs of layers": ("sharing_pair", [("draft", 3), ("draft-tree", 3), ("swift", 2)], SAMPLED, "coupled"),
    "experts": ("sparse_pair", [("draft", 3), ("plain", 0)], SAMPLED, "coupled"),
    "recurrent": (
        "recurrent_pair",
        [("draft", 3), ("draft-tree", 3), ("plain", 0), ("swift", 2), ("draft", 2)],
        SAMPLED,
        "coupled",
    ),
    "by ratio": ("small_pair", [("draft", 2), ("draft-tree", 3)], SAMPLED, "ratio"),
    "by blocks": ("small_pair", [("draft", 3), ("draft", 2)], FILTERED, "block"),
}
"""Every kind of verify pass, after chains and trees of models, of heads and of copies, and with sub-layers left out."""
OTHERS = ("greedy", "recurrent", "inputs of layers", "filters and penalties", "windows", "experts", "by ratio")
"""Whose kernels other tests run under the sanitiser, or other replies with as many options."""


@pytest.fixture(autouse=True)
def _never_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are as long as they may be: random models are sure of nothing."""
    monkeypatch.setattr(LengthPolicy, "ends", lambda *_: False)
    for module in (draft_model, eagle):
        monkeypatch.setattr(module, "LEAST", 0.0)


@pytest.fixture(scope="module")
def bare_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A random target with a draft that often agrees, both on the device."""
    root = tmp_path_factory.mktemp("bare")
    target = checkpoint(root / "target", **SHAPE)
    return device_runner(decoder(target), decoder(perturbed(root / "draft", target, 0.05)), VOCAB, DEVICE)


@pytest.fixture(scope="module")
def headed_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """The same with a head, and with layers for it to look at and for SWIFT to leave out."""
    root = tmp_path_factory.mktemp("headed")
    target = checkpoint(root / "target", **SHAPE | {"hidden_size": HIDDEN, "num_hidden_layers": 4})
    draft = decoder(perturbed(root / "draft", target, 0.05))
    found = FoundHeads({"eagle3": HeadFiles.open(eagle3(root / "eagle3", few=None))})
    return device_runner(decoder(target), draft, VOCAB, DEVICE, found=found)


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """As large pairs are run: bfloat16, quantised, and a draft with half of the tokens."""
    root = tmp_path_factory.mktemp("small")
    folder = checkpoint(root / "target", **SHAPE | {"num_hidden_layers": 1})
    target = decoder(folder, torch.bfloat16, "nf4")
    draft = few_on_device(perturbed(root / "draft", folder, 0.05), torch.bfloat16, "int8", "int8")
    return device_runner(target, draft, VOCAB, DEVICE)


@pytest.fixture(scope="module")
def windowed_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Layers with a window that is shorter than the prompt, and one without."""
    root = tmp_path_factory.mktemp("windows")
    folder = checkpoint(root / "target", **SHAPE)
    target, draft = (test_windows.opened(one) for one in (folder, perturbed(root / "draft", folder, 0.05)))
    return device_runner(test_windows.decoder(target), test_windows.decoder(draft), VOCAB, DEVICE)


@pytest.fixture(scope="module")
def sharing_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Layers with inputs by token, the last of which share KV entries."""
    root = tmp_path_factory.mktemp("sharing")
    target = checkpoint(root / "target", **changes("gemma4_e"))
    return device_runner(decoder(target), decoder(perturbed(root / "draft", target, 0.05)), VOCAB, DEVICE)


@pytest.fixture(scope="module")
def sparse_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Experts beside an MLP, quantised, and a layer without any after them."""
    root = tmp_path_factory.mktemp("experts")
    folder = checkpoint(root / "target", **changes("qwen2_moe") | {"mlp_only_layers": [1]})
    target = decoder(folder, torch.bfloat16, "int8")
    return device_runner(target, decoder(perturbed(root / "draft", folder, 0.05), torch.bfloat16), VOCAB, DEVICE)


@pytest.fixture(scope="module")
def recurrent_pair(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Recurrent layers, one of them without attention before it."""
    root = tmp_path_factory.mktemp("recurrent")
    folder = checkpoint(root / "target", **test_recurrent.changes(*test_recurrent.KINDS))
    target, draft = (test_recurrent.made(one) for one in (folder, perturbed(root / "draft", folder, 0.05)))
    return device_runner(target, draft, VOCAB, DEVICE)


def write(runner: Runner, drafting: Drafting, sampling: Sampling, acceptance: Acceptance) -> list[StepOutcome]:
    """The steps of a reply, without their times."""
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    for drafter in runner.drafters.values():
        drafter.forget()
        drafter.begin(PROMPT)
    reply = runner.reply(sampling, list(PROMPT), ())
    made = [reply.step(runner.drafters[strategy], length, acceptance) for strategy, length in drafting]
    reply.close()
    return [replace(one, draft_ms=0.0, verify_ms=0.0) for one in made]


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow if one in OTHERS else ()) for one in REPLIES],
)
def test_a_reply_depends_on_no_order_and_on_no_stale_value(request: pytest.FixtureRequest, name: str) -> None:
    pair, drafting, sampling, acceptance = REPLIES[name]
    runner = request.getfixturevalue(pair)
    expected = write(runner, drafting, sampling, acceptance)
    with sanitised(rarely=True) as found, poisoned() as counts:
        made = write(runner, drafting, sampling, acceptance)
    assert not found.faults
    assert made == expected
    assert all((strategy == "plain") == (not step.drafted) for (strategy, _), step in zip(drafting, made, strict=True))
    assert len(drafting) <= counts["steps"] < counts["passes"] <= found.launches["_embed"]
    assert counts["writes"]


def test_replies_in_company_depend_on_no_order_and_on_no_stale_value(tmp_path: Path) -> None:
    target = decoder(checkpoint(tmp_path / "target", **SHAPE | {"num_hidden_layers": 1}))
    runner, prompts = device_runner(target, None, VOCAB, DEVICE, room=1 << 30), [PROMPT, PROMPT[:4], PROMPT[::-1]]
    expected = alone(runner, prompts, 5)
    with sanitised(rarely=True) as found, poisoned() as counts:
        made = [reply.committed for reply, *_ in in_company(runner, prompts)]
    assert not found.faults
    assert made == expected
    assert counts["steps"] < counts["passes"] <= found.launches["_embed"]
