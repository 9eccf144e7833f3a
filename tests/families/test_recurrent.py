"""Recurrent states are rolled back as a KV cache is: the same bits for any cuts, trees, rejections and rewinds."""

from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3_5TextConfig

from specchat.engine.decoding.cached import CHECKPOINT_MARGIN, CachedModel
from specchat.engine.loading import load
from specchat.engine.memory.need import Model, need
from specchat.engine.memory.state_need import BACK, CHECKPOINTS, SLOTS
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import NOTHING, PassRows, Skip
from specchat.engine.model.tree_layout import Levels, depth_first
from specchat.engine.protocol.events import Started
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.test_trees import PARENTS, path_to
from tests.engine.tiny import FAMILIES, QWEN35, VOCAB, checkpoint, on_cpu, perturbed
from tests.families.test_strategies import written

LONG = {"max_position_embeddings": 2048}
THREE = {"num_hidden_layers": 3, "layer_types": QWEN35["layer_types"][:3], "num_local_experts": 0}
"""Two recurrent layers with one of attention between them, without experts."""
TEXT = 260
"""Tokens of a text: the log is folded several times."""
KINDS = {"reference": ReferenceDecoder, "host": host_model}
RECURRENT = "qwen3_5", "granitemoehybrid"
SLOW = "granitemoehybrid", "reference"
"""Of which the other decoder and the other family have a part each."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that forget slowly, so that what is wrong with old tokens shows, by family."""
    found = {}
    for family in RECURRENT:
        made = checkpoint(tmp_path_factory.mktemp(family) / "m", seed=5, **FAMILIES[family] | LONG | THREE)
        weights = load_file(made / "model.safetensors")
        slower = {name: weight - 5.0 for name, weight in weights.items() if name.endswith("A_log")}
        save_file(weights | slower, made / "model.safetensors", metadata={"format": "pt"})
        found[family] = made
    return found


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(case, id="-".join(case), marks=pytest.mark.slow if case == SLOW else ())
        for case in product(RECURRENT, KINDS)
    ],
)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A family, and what runs its model."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(scope="module")
def folder(case: tuple[str, str], folders: dict[str, Path]) -> Path:
    return folders[case[0]]


@pytest.fixture
def model(case: tuple[str, str], folder: Path) -> CachedDecoder:
    return KINDS[case[1]](Checkpoint.open(folder), 1024)


@pytest.fixture(scope="module")
def alone(case: tuple[str, str], folder: Path) -> Tensor:
    """Logits of a text, each token read alone."""
    made = KINDS[case[1]](Checkpoint.open(folder), 1024)
    return torch.cat([made.logits(made.forward([token], i)).clone() for i, token in enumerate(tokens(TEXT))])


def logits(model: CachedDecoder, ids: list[int], start: int = 0, skip: Skip = NOTHING) -> Tensor:
    return model.logits(model.forward(ids, start, skip)).clone()


def read(model: CachedDecoder, ids: list[int], cuts: tuple[int, ...]) -> Tensor:
    """Logits of a text in passes of `cuts` tokens, over and over."""
    made, at = [], 0
    while at < len(ids):
        rows = cuts[len(made) % len(cuts)]
        made.append(logits(model, ids[at : at + rows], at))
        at += rows
    return torch.cat(made)


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("cuts", [(5, 1, 17, 17), (2,), (7, 128)])
def test_cuts_change_no_bit(cuts: tuple[int, ...], model: CachedDecoder, alone: Tensor) -> None:
    assert torch.equal(read(model, tokens(TEXT), cuts), alone)


@pytest.mark.rotated(3, 2)
def test_rejected_tokens_leave_nothing_behind(model: CachedDecoder, alone: Tensor) -> None:
    ids, expected, at = tokens(TEXT), alone, 0
    for step in range(76):
        accepted, drafted = step % 5, 4 + step % 12
        block = [*ids[at : at + accepted + 1], *tokens(drafted, seed=step)]
        found = logits(model, block, at)[: accepted + 1]
        assert torch.equal(found, expected[at : at + accepted + 1]), step
        at += accepted + 1
    assert at > 2 * SLOTS


@pytest.mark.rotated(3, 1)
def test_a_text_is_rolled_back_bit_by_bit_as_far_as_is_promised(model: CachedDecoder, alone: Tensor) -> None:
    ids, expected = tokens(TEXT), alone
    for length, backs in ((70, (20,)), (150, (1, 3, BACK)), (250, (2, BACK))):
        for back in backs:
            read(model, ids[:length], (17, 1, 1, 1))
            start = length - back
            assert model.reusable(start, length) == start
            assert torch.equal(logits(model, ids[start : start + 9], start), expected[start : start + 9]), (
                length,
                back,
            )


@pytest.mark.rotated(3)
def test_a_text_is_rolled_back_to_the_very_beginning_of_the_log(model: CachedDecoder, alone: Tensor) -> None:
    """Whose convolution reads what lies before it."""
    ids, expected = tokens(TEXT), alone
    for length in range(150, 250, 33):
        read(model, ids[:length], (29,))
        log = next(log for log in model.cache.logs if log is not None)
        start = log.base
        assert model.reusable(start, length) == start < length - BACK
        assert torch.equal(logits(model, ids[start : start + 3], start), expected[start : start + 3]), length


def test_states_that_are_gone_are_not_gone_on_from(model: CachedDecoder) -> None:
    read(model, tokens(300), (128,))
    assert model.reusable(100, 300) == 0
    with pytest.raises(ValueError, match=r"states before position \d+ are gone, and 100 goes on from some"):
        model.forward([1], 100)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("start", [1, 2, 62, 120])
def test_a_row_of_a_tree_is_a_row_of_a_chain(start: int, model: CachedDecoder, folder: Path) -> None:
    chains = type(model)(Checkpoint.open(folder), 1024)
    ids, nodes = tokens(TEXT), tokens(11, seed=1)
    read(model, ids[:start], (17, 5))
    read(chains, ids[:start], (128,))
    rows = model.logits(model.forward(nodes, start, layout=depth_first(PARENTS))).clone()
    assert not torch.equal(rows[4], rows[2])
    for node in range(11):
        chained = [nodes[i] for i in (0, *path_to(node))]
        assert torch.equal(rows[node], logits(chains, chained, start)[-1]), node
    path = path_to(9)
    model.keep(path, start + 1)
    text = [*ids[:start], *(nodes[i] for i in (0, *path))]
    cold = read(chains, [*text, *ids[:40]], (16,))[len(text) :]
    assert torch.equal(torch.cat([logits(model, ids[i : i + 4], len(text) + i) for i in range(0, 40, 4)]), cold)


def test_a_tree_grown_level_by_level_is_the_tree_at_once(model: CachedDecoder, folder: Path) -> None:
    other = type(model)(Checkpoint.open(folder), 1024)
    nodes, ids = tokens(11, seed=1), tokens(59)
    for each in (model, other):
        read(each, ids, (16,))
    expected = other.forward(nodes, 59, layout=depth_first(PARENTS)).clone()
    found = {0: model.forward(nodes[:1], 59)[0].clone()}
    levels, rows = Levels(), dict[int, int]()
    for level in ([6, 1, 10], [4, 7, 2], [8, 3, 5], [9]):
        layout = levels.layout([[rows[node] for node in path_to(node)[:-1]] for node in level])
        rows |= {node: row for row, node in enumerate(level, len(rows))}
        hidden = model.forward([nodes[node] for node in level], 59, layout=layout).clone()
        found |= dict(zip(level, hidden, strict=True))
    assert all(torch.equal(found[node], expected[node]) for node in range(11))
    model.keep([rows[node] for node in path_to(9)], 60)
    other.forward([nodes[node] for node in (0, *path_to(9))], 59)
    assert torch.equal(logits(model, [7, 8], 64), logits(other, [7, 8], 64))


@pytest.mark.rotated(3, 1)
def test_drafts_of_the_first_layers_and_of_a_part_of_them_change_no_bit(model: CachedDecoder, alone: Tensor) -> None:
    """As early exit and SWIFT draft, whose trials read old tokens again."""
    ids, expected, skip = tokens(TEXT), alone, Skip(attention=frozenset({2}), mlp=frozenset({1}))
    for at in range(0, 132, 6):
        early = [
            model.run_and_record(model.embed([token]), range(2), PassRows([token], at + i))
            for i, token in enumerate(ids[at : at + 3])
        ]
        later = model.run_and_record(torch.cat(early), range(2, model.config.layers), PassRows(ids[at : at + 3], at))
        assert torch.equal(model.logits(later), expected[at : at + 3]), at
        for i in range(6):
            logits(model, [i], at + 3 + i, skip)
        if at > 40:
            model.likeliest(ids[at - 29 : at + 3], at - 29, skip)
        assert torch.equal(logits(model, ids[at + 3 : at + 6], at + 3), expected[at + 3 : at + 6]), at
    before = model.likeliest(ids[:32], 0, skip)
    assert len(before) == 32
    assert torch.equal(logits(model, ids[132:142], 132), expected[132:142])


@pytest.mark.rotated(3)
def test_the_next_turn_goes_on_from_a_checkpoint(model: CachedDecoder, folder: Path) -> None:
    """A reply whose reasoning the template drops diverges within the last tokens of its prompt."""
    held, text, at = CachedModel(model), tokens(150), 0
    for turn in range(CHECKPOINTS + 1):
        assert held.begin(text) == at, turn
        at = len(text) - 1 - CHECKPOINT_MARGIN
        long_reply = tokens(SLOTS + 8, seed=turn)
        for i in range(0, len(long_reply), 8):
            logits(model, [text[-1], *long_reply][i : i + 8], len(text) - 1 + i)
        held.tokens = [*text, *long_reply[:-1]]
        text = [*text[:-3], *tokens(40, seed=50 + turn)]
    cold = CachedModel(type(model)(Checkpoint.open(folder), 1024))
    assert held.begin(text) == at
    assert cold.begin(text) == 0
    assert torch.equal(logits(model, text[-1:], len(text) - 1), logits(cold.model, text[-1:], len(text) - 1))


@pytest.mark.rotated(3, 2)
def test_checkpoints_are_few_and_hold_for_the_text_that_they_were_taken_of(model: CachedDecoder) -> None:
    held = CachedModel(model)
    text = tokens(650)
    ends = [130, 260, 390, 520, 650]
    for end in ends:
        held.begin(text[:end])
    marks = [end - 1 - CHECKPOINT_MARGIN for end in ends]
    assert [model.reusable(mark, ends[-1]) for mark in marks] == [0] * (5 - CHECKPOINTS) + marks[-CHECKPOINTS:]
    assert model.reusable(marks[-1] - 2 * BACK, ends[-1]) == marks[-2]
    other = [*text[: marks[2] + 5], *tokens(100, seed=1)]
    assert held.begin(other) == marks[2]
    assert list(model.cache._checkpoints) == [marks[2], len(other) - 1 - CHECKPOINT_MARGIN]


@pytest.mark.rotated(3, 1)
def test_a_checkpoint_of_another_text_is_not_gone_on_from(model: CachedDecoder, folder: Path) -> None:
    """An edit before a checkpoint, and a text that goes on from the same position later."""
    held, first, mark = CachedModel(model), tokens(300), 300 - 1 - CHECKPOINT_MARGIN
    held.begin(first)
    edited = [*first[: mark - 9], *tokens(200, seed=1)]
    held.begin(edited[:300])
    held.begin(edited)
    text = [*edited[: mark + 3], *tokens(9, seed=2)]
    cold = CachedModel(type(model)(Checkpoint.open(folder), 1024))
    assert held.begin(text) == mark
    cold.begin(text)
    assert torch.equal(logits(model, text[-1:], len(text) - 1), logits(cold.model, text[-1:], len(text) - 1))


@pytest.mark.parametrize("family", RECURRENT)
def test_every_strategy_writes_over_the_edges_of_the_log_what_plain_writes(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = folders[family]
    draft = perturbed(tmp_path / "draft", folder, 0.05)
    session = load(PairSpec("p", "P", on_cpu(folder), on_cpu(draft), context=1024), lambda _: None)
    asked = (Message("user", "abc" * 60),)
    plain = written(session, Sampling(), Speculation(), asked, Limits(150)).token_ids
    for status in session.info.strategies:
        if status.available:
            made = written(session, Sampling(), Speculation.of(status.name), asked, Limits(150)).token_ids
            assert made == plain, status.name


@pytest.mark.parametrize("family", RECURRENT)
def test_a_chat_whose_template_drops_reasoning_is_not_read_anew(family: str, folders: dict[str, Path]) -> None:
    session = load(PairSpec("p", "P", on_cpu(folders[family]), context=1024), lambda _: None)

    def read_of(*asked: Message) -> tuple[int, int]:
        """Tokens of the prompt, and how many of them were held already."""
        request = Generate(1, asked, Sampling(), Limits(150), Speculation.of("lookup"))
        started, *_ = session.generate(request)
        assert isinstance(started, Started)
        return started.prompt_tokens, started.reused

    session.eos = frozenset()
    chat, expected = [Message("user", "abc" * 60)], 0
    for turn in range(3):
        length, reused = read_of(*chat)
        assert reused == expected
        expected = length - 1 - CHECKPOINT_MARGIN
        chat += [Message("assistant", "another answer"), Message("user", f"and {turn}?")]


@pytest.mark.rotated(3)
def test_what_it_takes_is_planned(model: CachedDecoder) -> None:
    """With all checkpoints."""
    held, before = CachedModel(model), model.cache.memory()
    for end in range(130, 521, 130):
        held.begin(tokens(end))
    assert before < model.cache.memory()
    assert need(Model(model.config, "cpu", threads=1), model.context).cache == model.cache.memory()


@pytest.mark.parametrize("sees", [False, True])
def test_a_saved_model_is_read_as_transformers_reads_it(sees: bool, tmp_path: Path) -> None:
    shape = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 256}
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
    dims = {"linear_key_head_dim": 16, "linear_value_head_dim": 32, "eos_token_id": 256}
    text = shape | heads | linear | dims
    torch.manual_seed(3)
    if sees:
        vision = {"hidden_size": 32, "intermediate_size": 32, "depth": 1, "num_heads": 2, "out_hidden_size": 64}
        made = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision))
    else:
        made = AutoModelForCausalLM.from_config(Qwen3_5TextConfig(**text))
    made.float()
    for name, weight in made.named_parameters():
        matrix = weight.dim() > 1 and "conv1d" not in name
        weight.data.normal_(std=1.6 / weight.shape[1] ** 0.5 if matrix else 0.5)
    made.save_pretrained(tmp_path)
    ids = tokens(60)
    with torch.no_grad():
        theirs = made(torch.tensor([ids])).logits[0]
        continued = made.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=300)
    assert theirs.std() > 0.3
    for kind in KINDS.values():
        model = kind(Checkpoint.open(tmp_path))
        torch.testing.assert_close(read(model, ids, (5, 1, 17, 17)), theirs, atol=3e-4, rtol=1e-4)
        written_ids, text_ids = [], list(ids)
        for _ in range(24):
            at = len(text_ids) - 1
            text_ids.append(int(logits(model, text_ids[-1:], at)[-1].argmax()))
            written_ids.append(text_ids[-1])
        assert written_ids == continued[0, 60:].tolist()
