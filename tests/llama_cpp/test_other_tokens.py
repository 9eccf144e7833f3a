"""Drafts for GGUF targets whose tokens are others, or padded to another number."""

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from measure.other_drafts import cut, permuted
from specchat.config.paths import demo_model
from specchat.engine.cross_tokenizer.model import CrossTokenizerModel
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.llama_cpp.export import export
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_lossless import SAMPLINGS, finished, reply
from tests.engine.tiny import checkpoint
from tests.llama_cpp.conftest import byte_tokenizer, loaded

pytestmark = pytest.mark.needs_llama

STRATEGIES = ("draft", "cascade", "auto")
STORY = "Tell me a story about a fox and a lamp."


def written(folder: Path, file: Path) -> Path:
    """A checkpoint as a GGUF file of float32."""
    export(Checkpoint.open(folder), file, "f32")
    return file


@pytest.mark.parametrize("as_gguf", [True, False])
def test_drafts_of_other_tokens_change_no_text(demo_files: tuple[Path, Path], tmp_path: Path, as_gguf: bool) -> None:
    for folder in (permuted(tmp_path / "a", demo_model("draft")), cut(tmp_path / "b", demo_model("draft"), 1100)):
        session = loaded(demo_files[0], written(folder, tmp_path / f"{folder.name}.gguf") if as_gguf else folder)
        assert "the draft's tokens differ" in session.info.notes.note
        assert session.runner.draft is not None
        model = session.runner.draft.model
        assert isinstance(model, CrossTokenizerModel)
        assert isinstance(model.model, GgufModel) == as_gguf
        accepted = Counter[str]()
        few = dict.fromkeys(session.tokenizer.encode("😀 a"), 30.0)
        for sampling in (Sampling(), replace(SAMPLINGS["everything"], seed=2), Sampling(logit_bias=few)):
            plain = finished(reply(session, STORY, sampling, Limits(24), Speculation()))
            for strategy, length in product(STRATEGIES, (1, 6)):
                last = finished(reply(session, STORY, sampling, Limits(24), Speculation(strategy, length)))
                assert (last.token_ids, last.text) == (plain.token_ids, plain.text), strategy
                accepted[strategy] += last.stats.num_accepted_draft_tokens
        assert all(accepted[strategy] for strategy in STRATEGIES)


def test_a_files_tokens_translate_as_the_checkpoints_do(demo_files: tuple[Path, Path], tmp_path: Path) -> None:
    folder = cut(tmp_path / "b", demo_model("draft"), 1100)
    session = loaded(demo_files[0], written(folder, tmp_path / "b.gguf"))
    assert session.runner.draft is not None
    model = session.runner.draft.model
    assert isinstance(model, CrossTokenizerModel)
    target = Checkpoint.open(demo_model("target")).tokenizer()
    ours, theirs = VocabularyMap.of(target, Checkpoint.open(folder).tokenizer()), model.vocabulary_map
    for name in ("texts", "special", "to_target", "continuations", "spelled", "renumbered", "summary"):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize(("rows", "more"), [(288, 320), (320, 288)])
def test_tokens_padded_to_other_numbers_are_the_same(rows: int, more: int, tmp_path: Path) -> None:
    """As of Qwen2.5, whose 0.5B has 151,936 rows and whose 7B 152,064, for 151,665 tokens."""
    files = []
    for name, size in (("target", more), ("draft", rows)):
        options = {"num_key_value_heads": 2, "tie_word_embeddings": False, "eos_token_id": 257}
        folder = checkpoint(tmp_path / name, backend=byte_tokenizer(), vocab_size=size, **options)
        files.append(written(folder, tmp_path / f"{name}.gguf"))
    session = loaded(*files)
    assert session.info.notes.note == ""
    padding = 0
    for sampling in (SAMPLINGS["greedy"], SAMPLINGS["T=1"]):
        plain = finished(reply(session, "abc", sampling, Limits(60), Speculation()))
        last = finished(reply(session, "abc", sampling, Limits(60), Speculation("draft", 5)))
        assert last.token_ids == plain.token_ids
        padding += sum(token >= 261 for token in plain.token_ids)
    assert padding, "a random target chooses its padding rows as well"
