"""What tokens stand for, and a text of one tokenizer's tokens in those of another."""

import functools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from measure.other_drafts import cut, permuted
from specchat.config.paths import demo_model
from specchat.engine.cross_tokenizer.retokenise import MAX_WORD_TOKENS, Retokenizer
from specchat.engine.cross_tokenizer.token_bytes import ALPHABET, FragmentEncoder, bytes_of, token_bytes
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.protocol.options import Message
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.conftest import SHARED
from tests.engine.tiny import SPECIAL, byte_fallback, checkpoint

TEXT = "The fox’s lamp 😀 costs 12.50 €,\n\n    and  so on: naïve 東京 \t x = [1, 2]\nThe end"


@pytest.fixture(scope="module")
def demo() -> Tokenizer:
    return Tokenizer.read(demo_model("target"))


@pytest.fixture(scope="module")
def fewer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The demo's tokenizer with fewer of its words."""
    return Tokenizer.read(cut(tmp_path_factory.mktemp("fewer"), demo_model("draft"), 900))


def words() -> Library:
    """Whole words, some beginning in the middle of one, as BERT's."""
    vocab = {"[UNK]": 0, "the": 1, "fox": 2, "##es": 3, "lamp": 4}
    backend = Library(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=False)
    backend.add_special_tokens(SPECIAL)
    return backend


def read(folder: Path, backend: Library) -> Tokenizer:
    return Tokenizer.read(checkpoint(folder, backend=backend))


def test_the_alphabet_of_byte_level_tokenizers() -> None:
    assert (ALPHABET["A"], ALPHABET["Ġ"], ALPHABET["Ċ"], ALPHABET["ð"]) == (65, 32, 10, 0xF0)
    assert sorted(ALPHABET.values()) == list(range(256))


def test_tokens_stand_for_their_bytes(demo: Tokenizer, tmp_path: Path) -> None:
    spelt = token_bytes(demo)
    for text in (TEXT, " the the"):
        assert b"".join(spelt[token] for token in demo.encode(text)) == text.encode()
    assert not set(spelt) & set(demo.backend.get_added_tokens_decoder())
    pieces = read(tmp_path / "pieces", byte_fallback())
    spelt = token_bytes(pieces)
    assert (spelt[0], spelt[2], spelt[3 + 0xF0]) == (b" ", b" a", b"\xf0")
    assert b"".join(spelt[token] for token in pieces.encode(TEXT)) == b" " + TEXT.encode()
    bert = token_bytes(read(tmp_path / "words", words()))
    assert (bert[1], bert[3]) == (b" the", b"es")


def test_one_token_has_its_bytes(demo: Tokenizer, tmp_path: Path) -> None:
    for tokenizer in (demo, read(tmp_path / "pieces", byte_fallback()), read(tmp_path / "words", words())):
        for token, spelt in token_bytes(tokenizer).items():
            assert bytes_of(tokenizer, token) == spelt
    assert bytes_of(demo, demo.backend.token_to_id("<|end|>")) == b"<|end|>"


@pytest.mark.parametrize("build", [None, byte_fallback])
def test_the_middle_of_a_text_is_split_without_a_space_before(
    demo: Tokenizer, tmp_path: Path, build: Callable[[], Library] | None
) -> None:
    tokenizer = read(tmp_path / "other", build()) if build else demo
    spelt = token_bytes(tokenizer)
    encoder = FragmentEncoder(tokenizer, spelt)
    for text in (b"amp", b" a fox", b"\na", TEXT.encode(), "😀".encode()[:3], b"a\xf0\x9f \x80b"):
        assert b"".join(spelt[token] for token in encoder.encode(text)) == text


def test_vocabularies_translate(demo: Tokenizer, fewer: Tokenizer) -> None:
    known = VocabularyMap.of(demo, fewer)
    mine, own = token_bytes(demo), token_bytes(fewer)
    assert "it has 894 of the target's 3,066" in known.summary
    assert known.special == {token: (token,) for token in range(6)}, "special tokens of the same name"
    for path, token in known.spelled.items():
        assert b"".join(own[one] for one in path) == mine[token]
        assert all(path[end] in known.continuations[path[:end]] for end in range(1, len(path)))
    assert len(known.spelled) == 3066 - 894
    assert all(mine[first] == own[token] for token, (first,) in known.to_target.items() if token > 5)
    back = VocabularyMap.of(fewer, demo)
    assert not back.spelled
    longer = {token: path for token, path in back.to_target.items() if len(path) > 1}
    assert len(longer) == 3066 - 894
    assert all(b"".join(own[one] for one in path) == mine[token] for token, path in longer.items())


def test_ends_stand_for_each_other_and_other_marks_are_plain_text(tmp_path: Path, demo: Tokenizer) -> None:
    other = checkpoint(tmp_path / "other", special=["<|end|>", "<|begin|>"])
    config = other / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"eos_token": "<|end|>"', '"eos_token": "<|begin|>"'))
    tokenizer = Tokenizer.read(other)
    known = VocabularyMap.of(demo, tokenizer)
    assert known.special[1] == (256,), "the same name goes before the same meaning"
    spelt = token_bytes(tokenizer)
    assert b"".join(spelt[token] for token in known.special[3]) == b"<|user|>"
    assert known.to_target[257] == (1,), "the other end means the target's"


def check_growth(vocabulary_map: VocabularyMap, own: dict[int, bytes], tokens: list[int]) -> None:
    """However a text grows and shrinks, its own tokens are those of the whole text and spell it."""
    draw = random.Random(3)
    retokenizer, text = Retokenizer(vocabulary_map), list[int]()
    for _ in range(120):
        start = draw.randrange(max(0, len(text) - 6), len(text) + 1) if draw.random() < 0.4 else len(text)
        begin = draw.randrange(len(tokens))
        new = tokens[begin : begin + draw.randrange(1, 7)]
        before = list(retokenizer.draft_tokens)
        kept = retokenizer.put(new, start)
        text = text[:start] + new
        assert retokenizer.draft_tokens[:kept] == before[:kept]
        afresh = Retokenizer(vocabulary_map)
        afresh.put(text, 0)
        assert retokenizer.draft_tokens == afresh.draft_tokens
        assert retokenizer.settled <= len(retokenizer.draft_tokens)
        told = b"".join(own.get(token, b"") for token in retokenizer.draft_tokens)
        assert told == b"".join(vocabulary_map.texts.get(token, b"") for token in text)


def test_a_text_that_grows_and_shrinks_is_told_as_if_at_once(demo: Tokenizer, fewer: Tokenizer) -> None:
    for target, draft in ((demo, fewer), (fewer, demo)):
        tokens = target.prompt([Message("user", TEXT), Message("assistant", TEXT)])
        check_growth(VocabularyMap.of(target, draft), token_bytes(draft), tokens)


def test_words_are_split_as_the_draft_splits_them(demo: Tokenizer, fewer: Tokenizer) -> None:
    retokenizer = Retokenizer(VocabularyMap.of(fewer, demo))
    text = "The story of the little fox and the speculative decoding lamp."
    for place, token in enumerate(fewer.encode(text)):
        retokenizer.put([token], place)
    assert retokenizer.draft_tokens == demo.encode(text)


def test_what_has_no_spaces_is_cut_somewhere(demo: Tokenizer, fewer: Tokenizer) -> None:
    retokenizer = Retokenizer(VocabularyMap.of(demo, fewer))
    retokenizer.put(demo.encode("x" * 40 * MAX_WORD_TOKENS), 0)
    assert retokenizer.put([demo.encode("x")[0]], len(demo.encode("x" * 40 * MAX_WORD_TOKENS))) > 30 * MAX_WORD_TOKENS


def test_the_same_tokens_by_other_numbers_are_taken_one_by_one(demo: Tokenizer, tmp_path: Path) -> None:
    other = Tokenizer.read(permuted(tmp_path / "other", demo_model("draft")))
    known = VocabularyMap.of(demo, other)
    assert not known.continuations
    # No tokenizer would split a text so.
    tokens = [demo.encode("x")[0]] * 3 + [demo.encode("😀")[0], 0, 3, 1]
    retokenizer = Retokenizer(known)
    retokenizer.put(tokens, 0)
    spelt = token_bytes(other)
    assert [spelt.get(token, token) for token in retokenizer.draft_tokens] == [
        known.texts.get(token, token) for token in tokens
    ]


CHAT = (
    Message("system", "Be brief."),
    Message("user", "Tell me a story about a fox."),
    Message("assistant", "The fox saw a lamp."),
    Message("user", "Go on."),
)


def test_what_templates_put_around_messages_is_the_drafts_own(demo: Tokenizer, tmp_path: Path) -> None:
    folder = permuted(tmp_path / "other", demo_model("draft"))
    for file in (folder / "tokenizer.json", folder / "tokenizer_config.json"):
        file.write_text(file.read_text().replace("<|user|>", "[ask]").replace("<|end|>", "</s>"))
    other = Tokenizer.read(folder)
    known = VocabularyMap.of(demo, other)
    for length in (1, 2, 4):
        for each in (1, 3, 100):
            retokenizer, tokens = Retokenizer(known), demo.prompt(CHAT[-length:])
            for start in range(0, len(tokens), each):
                retokenizer.put(tokens[start : start + each], start)
            assert retokenizer.draft_tokens == other.prompt(CHAT[-length:])
    # What only begins as a frame is told token by token.
    marks, fox = demo.prompt(CHAT[:1])[:2], demo.encode("fox")
    retokenizer = Retokenizer(known)
    retokenizer.put([*marks[:1], *fox, *marks, *fox, 0], 0)
    assert retokenizer.draft_tokens == [
        *marks[:1],
        *other.encode("fox"),
        *other.prompt(CHAT[:1])[:2],
        *other.encode("fox"),
        0,
    ]


@functools.cache
def published(name: str) -> Tokenizer:
    return Tokenizer.read(SHARED / "tokenizers" / name)


@functools.cache
def mapped(target: str, draft: str) -> VocabularyMap:
    return VocabularyMap.of(published(target), published(draft))


@pytest.mark.parametrize(
    "names",
    [("llama3_hf", "qwen2.5_hf"), pytest.param(("qwen2.5_hf", "llama3_hf"), marks=pytest.mark.slow)],
    ids=" in ".join,
)
@pytest.mark.usefixtures("shared_data")
def test_published_templates_translate(names: tuple[str, str]) -> None:
    """Two families' own templates, each in the words of the other."""
    target, draft = map(published, names)
    if target.template is None or draft.template is None:
        pytest.skip("these tokenizers have no templates")
    retokenizer = Retokenizer(mapped(*names))
    tokens = target.prompt(CHAT)
    for start in range(0, len(tokens), 3):
        retokenizer.put(tokens[start : start + 3], start)
    assert retokenizer.draft_tokens == draft.prompt(CHAT)


@pytest.mark.usefixtures("shared_data")
def test_published_tokenizers_translate() -> None:
    """Most of their tokens are the same, for both come from one list of words."""
    llama, qwen = published("llama3_hf"), published("qwen2.5_hf")
    known = mapped("llama3_hf", "qwen2.5_hf")
    shared = [token for token, path in known.to_target.items() if len(path) == 1]
    assert len(shared) > 100_000
    own = token_bytes(qwen)
    check_growth(known, own, llama.encode(TEXT * 2))
    retokenizer = Retokenizer(known)
    retokenizer.put(llama.encode("Numbers such as 123456 are split otherwise."), 0)
    assert retokenizer.draft_tokens == qwen.encode("Numbers such as 123456 are split otherwise.")
    assert not any(token in known.special for token in known.texts)
