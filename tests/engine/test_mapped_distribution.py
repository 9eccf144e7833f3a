"""The law of a target's next token, from a draft whose own tokens are others."""

from collections.abc import Sequence

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from specchat.engine.cross_tokenizer.model import TRIALS, CrossTokenizerModel
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.tiny import checkpoint


class Scripted(ReferenceDecoder):
    """Gives these scores after each of its own texts."""

    context, block, vocab = 64, 8, 262

    def __init__(self, chances: dict[tuple[int, ...], dict[int, float]]) -> None:
        self.chances = chances
        self.text: list[int] = []
        self.read = 0

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        self.text[start:] = tokens
        self.read += len(tokens)
        return torch.zeros(len(tokens), 1)

    def write(self, tokens: Sequence[int], start: int) -> None:
        self.text[start:] = tokens

    def reusable(self, length: int, _: int) -> int:
        return length

    def logits(self, hidden: Tensor) -> Tensor:
        row = torch.full((1, self.vocab), 1e-9)
        for token, chance in self.chances.get(tuple(self.text), {}).items():
            row[0, token] = chance
        return row.log()


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """One token a byte; and beside these "th" (256), "the" (257), "fo" (258), with the special ones after them."""
    root = tmp_path_factory.mktemp("tokenizers")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: token for token, word in enumerate([*alphabet, "th", "the", "fo"])}
    longer = Library(models.BPE(vocab=words, merges=[("t", "h"), ("th", "e"), ("f", "o")]))
    longer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    longer.decoder = decoders.ByteLevel()
    longer.add_special_tokens(["<|end|>"])
    single = checkpoint(root / "bytes", special=["<|end|>"])
    return Tokenizer.read(checkpoint(root / "longer", backend=longer)), Tokenizer.read(single)


def chances_of(model: CrossTokenizerModel, tokens: list[int], start: int) -> dict[int, float]:
    """What is likely to follow `tokens`, by the target's tokens."""
    shares = model.logits(model.forward(tokens, start))[0].softmax(0)
    return {int(token): round(float(shares[token]), 3) for token in (shares > 1e-4).nonzero()[:, 0]}


def test_a_longer_token_is_spelt_and_gets_the_chance_of_its_path(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    longer, single = tokenizers
    x, t, h, e, f, o, a = (single.encode(char)[0] for char in "xthefoa")
    script = Scripted(
        {
            (x,): {t: 0.6, a: 0.3, 0: 0.1},
            (x, t): {h: 0.9, a: 0.1},
            (x, t, h): {e: 0.5, a: 0.3, o: 0.2},
            (x, t, h, e): {f: 0.9, a: 0.1},
            (x, t, h, e, f): {a: 0.8, o: 0.2},
        }
    )
    model = CrossTokenizerModel(script, VocabularyMap.of(longer, single), 260)
    assert chances_of(model, [x], 0) == {0: 0.1, t: 0.06, a: 0.3, 256: 0.27, 257: 0.27}
    assert script.read == 3
    # What was spelt is in the cache but for the "e"; "f" may begin another word.
    assert chances_of(model, [257], 1) == {f: 0.878, a: 0.122}
    assert script.read == 5
    assert script.text == [x, t, h, e, f]


def test_a_token_that_only_the_draft_has_is_said_in_parts(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    longer, single = tokenizers
    x, t, h, e, a = (single.encode(char)[0] for char in "xthea")
    script = Scripted({(x,): {257: 0.6, 256: 0.1, t: 0.1, a: 0.2}, (x, 257): {a: 1.0}})
    model = CrossTokenizerModel(script, VocabularyMap.of(single, longer), 257)
    assert chances_of(model, [x], 0) == {t: 0.8, a: 0.2}
    assert chances_of(model, [t], 1) == {h: 1.0}
    assert chances_of(model, [h], 2) == {e: 1.0}
    assert script.read == 1
    assert chances_of(model, [e], 3) == {a: 1.0}
    assert (script.read, script.text) == (2, [x, 257])
    # Of another text nothing is promised.
    assert chances_of(model, [x], 0) == {t: 0.8, a: 0.2}
    model.forward([a], 0)
    assert chances_of(model, [t], 1) != {h: 1.0}


def test_a_model_of_other_tokens_drafts_chains_alone(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    longer, single = tokenizers
    model = CrossTokenizerModel(Scripted({}), VocabularyMap.of(longer, single), 260)
    with pytest.raises(ValueError, match="chains"):
        model.forward([1], 0, Skip(frozenset({0})))
    with pytest.raises(ValueError, match="chains"):
        model.keep([0], 0)


def test_a_beginning_that_hardly_ever_goes_on_is_not_looked_at(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    longer, single = tokenizers
    x, t, h, a = (single.encode(char)[0] for char in "xtha")
    script = Scripted({(x,): {t: 1.0}, (x, t): {a: 0.9, h: 0.1}})
    model = CrossTokenizerModel(script, VocabularyMap.of(longer, single), 260)
    for _ in range(TRIALS):
        script.read = 0
        assert chances_of(model, [x], 0) == {t: 1.0}
        model.forward([a], 0)
    script.read = 0
    assert chances_of(model, [x], 0) == {t: 1.0}
    assert script.read == 1
