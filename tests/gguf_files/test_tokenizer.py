"""Tokenizers from the metadata of GGUF files: as the folders that were converted have them."""

import json
import os
import unicodedata
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from specchat.config.paths import demo_model
from specchat.engine.errors import ModelError
from specchat.engine.gguf.header import read_header
from specchat.engine.gguf.pre_tokenizers import PRE_TOKENIZERS
from specchat.engine.gguf.token_lists import Metadata, metadata_of
from specchat.engine.gguf.tokenizer import stop_tokens, tokenizer_files
from specchat.engine.protocol.options import Message
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.conftest import SHARED
from tests.gguf_files.converted import converted, looks_special

FILE = Path("model.gguf")
TEXTS = (
    "Hello, world! It's 2,048 (or 1234567) words; they'LL say WE'VE done it.",
    "def f(x):\n    return {'a': [x ** 2, 0x1F]}\n\n\n\tif not x:  # nothing\r\n",
    "  two spaces, a tab\t, a no-break\u00a0space,   and trailing   ",
    "漢字とひらがなカタカナ、한국어 텍스트。「引用」！？ 我想在apple工作1314151天～",
    "Ünïcödé e\u0301 a\u0300a\u0300 กำลัง नमस्ते Việt нещо на Български ½ Ⅷ ٣٤٥ ﬁ Å Ω",
    "🚀 (normal) 😶\u200d🌫️ 👩🏽\u200d💻 ✅ ………!!!!!!'''''\"\"\"\"",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n",
    "\x00\x01\x7f\u200b\ufeff\ufffd\U0010ffff",
    "HelloWorld HTTPServer iPhone's naïveté ÀÉÎ",
    "<|im_start|>user<|im_end|> [INST] </s><s> <unk> <think>",
    "",
    " ",
)
PIECES = st.sampled_from([*"abz XY019\n\t'.,;:()é漢½٣Ⅷ", "  ", "'s", " '", "👍", "e\u0301", "\u00a0", "123", "ing"])
ANY_TEXT = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(max_size=40))


def of(metadata: Metadata) -> Tokenizer:
    files = tokenizer_files(metadata, FILE)
    return Tokenizer(files.backend, files.file, files.special, files.template)


def assert_same(ours: Tokenizer, theirs: Tokenizer, text: str) -> None:
    for special in (False, True):
        assert ours.backend.encode(text, add_special_tokens=special).ids == (
            theirs.backend.encode(text, add_special_tokens=special).ids
        )
    tokens = ours.encode(text)
    assert tokens == theirs.encode(text)
    assert ours.decode(tokens) == theirs.decode(tokens)
    assert [ours.text_of(token) for token in tokens] == [theirs.text_of(token) for token in tokens]


FOLDERS = {"demo": (None, "smollm"), "qwen2.5_hf": ("qwen2.5_hf", "qwen2"), "llama3_hf": ("llama3_hf", "llama-bpe")}
"""Byte-level tokenizers, with the name that llama.cpp's converter gives their pre-tokenizers."""


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer from metadata, and that of the folder."""
    pytest.importorskip("gguf")
    name, pre = FOLDERS[request.param]
    folder = demo_model("target") if name is None else SHARED / "tokenizers" / name
    if not folder.exists():
        pytest.skip(f"needs {folder}")
    metadata = converted(folder, tmp_path_factory.mktemp("gguf") / "a.gguf", pre, padding=7)
    return of(metadata), Tokenizer.read(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_split_and_joined_as_the_folder_says(pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
    assert_same(*pair, text)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=ANY_TEXT)
def test_any_text_is_split_and_joined_as_the_folder_says(pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
    assert_same(*pair, text)


def test_added_tokens_in_a_text_are_those_of_the_folder(pair: tuple[Tokenizer, Tokenizer]) -> None:
    ours, theirs = pair
    for one in theirs.added.values():
        text = f"a {one.content} b{one.content}\n{one.content}"
        assert ours.as_it_stands(text) == theirs.as_it_stands(text)


def test_all_else_of_it_is_the_folders_too(pair: tuple[Tokenizer, Tokenizer]) -> None:
    ours, theirs = pair
    assert ours.vocabulary == theirs.vocabulary
    assert ours.size == theirs.size
    assert ours.source.text == theirs.source.text
    assert (ours.format, ours.eos) == (theirs.format, theirs.eos)
    assert ours.special.items() >= {(name, text) for name, text in theirs.special.items() if name != "unk_token"}
    special = {token: one.special or looks_special(one.content) for token, one in theirs.added.items()}
    assert {token: one.special for token, one in ours.added.items()} == special
    chat = [Message("user", "What is 12 × 34?"), Message("assistant", "408"), Message("user", "漢字?")]
    assert ours.prompt(chat) == theirs.prompt(chat)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder with real checkpoints is not beside this checkout")
def test_a_file_of_pieces_is_as_the_folder_it_came_from() -> None:
    folder = SHARED / "checkpoints"
    metadata = metadata_of(read_header(folder / "stories260K-f32.gguf"))
    ours, theirs = of(metadata), Tokenizer.read(folder / "stories260K")
    for text in (*TEXTS, "Once upon a time, Lily — the 3rd — saw a 漢 fox. <s> and </s>"):
        assert_same(ours, theirs, text)
    assert (ours.vocabulary, ours.eos, ours.special) == (theirs.vocabulary, theirs.eos, theirs.special)
    assert stop_tokens(metadata, FILE) == {2}


CORPUS = [*TEXTS, *(f"{word}{end}" for word, end in product(("the cat", "another one", "nothing there"), ".!?\n"))]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def pieces(prefix: bool) -> Library:
    """A tokenizer of pieces, as transformers converts those of SentencePiece."""
    special = ["<unk>", "<s>", "</s>", *BYTE_TOKENS]
    backend = Library(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replaced = [normalizers.Replace(" ", "▁")]
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * prefix + replaced)
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    # Byte tokens are no added tokens.
    again = Library(
        models.BPE(backend.get_vocab(), merges_of(backend), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    again.normalizer = backend.normalizer
    strip = [decoders.Strip(" ", 1, 0)] * prefix
    again.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    again.add_special_tokens(special[:3])
    return again


def merges_of(backend: Library) -> list[tuple[str, str]]:
    return [tuple(merge) for merge in json.loads(backend.to_str())["model"]["merges"]]


def metadata_of_pieces(backend: Library, **more: Any) -> dict[str, object]:
    """A vocabulary of pieces in llama.cpp's terms; later pieces have lower scores."""
    texts = {token: text for text, token in backend.get_vocab().items()}
    types = {0: 2, 1: 3, 2: 3, **dict.fromkeys(range(3, 259), 6)}
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [texts[token] for token in range(len(texts))],
        "tokenizer.ggml.token_type": [types.get(token, 1) for token in range(len(texts))],
        "tokenizer.ggml.scores": [-float(token) for token in range(len(texts))],
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_scores_rank_pieces_as_merges_do(prefix: bool, architecture: str) -> None:
    backend = pieces(prefix)
    scores = [-1000.0] * backend.get_vocab_size() if architecture == "gemma3" else None
    more = {"add_space_prefix": prefix, "add_bos_token": False, **({"scores": scores} if scores else {})}
    metadata = {**metadata_of_pieces(backend, **more), "general.architecture": architecture}
    ours = of(metadata)
    for text in (*CORPUS, "the  another 漢字 nothings", "x<s>y z</s> w"):
        if architecture == "gemma3" and any(2 * space in text for space in " \n\t"):
            continue  # Gemma joins runs first
        ids = ours.backend.encode(text).ids
        assert ids == backend.encode(text).ids
        assert ours.backend.decode(ids) == backend.decode(ids)


def test_pieces_with_merges_are_joined_by_them() -> None:
    backend = pieces(False)
    for model, pre in (("gemma4", ""), ("gpt2", "gemma4"), ("gpt2", "sarvam-moe")):
        merges = [" ".join(merge) for merge in merges_of(backend)]
        metadata = metadata_of_pieces(backend, model=model, pre=pre, merges=merges, unknown_token_id=0)
        ours = of(metadata)
        for text in CORPUS:
            assert ours.backend.encode(text).ids == backend.encode(text).ids


def test_tokens_of_spaces_alone_are_gemmas_pieces() -> None:
    backend = pieces(False)
    metadata = {**metadata_of_pieces(backend, add_space_prefix=False), "general.architecture": "gemma2"}
    token = backend.token_to_id("▁▁")
    assert token is not None
    metadata["tokenizer.ggml.tokens"][token] = "  "  # type: ignore[index]
    metadata["tokenizer.ggml.token_type"][token] = 4  # type: ignore[index]
    ours = of(metadata)
    text = "a  b"
    assert token in ours.encode(text)
    assert ours.encode(text) == backend.encode(text).ids
    assert ours.decode(ours.encode(text)) == text


def test_gemma_joins_runs_of_spaces_to_the_longest_first() -> None:
    texts = ["<unk>", "x", *(n * space for n in (1, 2, 3) for space in "▁\n"), "▁x", "▁▁x"]
    metadata: dict[str, object] = {
        "general.architecture": "gemma3",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [2, *[1] * (len(texts) - 1)],
        "tokenizer.ggml.scores": [-1000.0] * len(texts),
        "tokenizer.ggml.add_space_prefix": False,
    }
    ids = of(metadata).encode("     x\n\n\n\nx x")
    assert [texts[token] for token in ids] == ["▁▁▁", "▁▁x", "\n\n\n", "\n", "x", "▁x"]


def bytewise(pre: str = "gpt-2", **more: Any) -> dict[str, object]:
    """A byte-level vocabulary: one token a byte, a few words, and added tokens of each type."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [*alphabet, "th", "the", "Ġthe", "<|im_start|>", "<|im_end|>", "<tool>", "[PAD262]", "", "<|endoftext|>"]
    types = [1] * 259 + [3, 3, 4, 5, 5, 1]
    return {
        "general.architecture": "qwen2",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["t h", "th e", "Ġ the"],
        "tokenizer.ggml.eos_token_id": 260,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_every_character(pre: str) -> None:
    ours = of(bytewise(pre))
    for text in TEXTS:
        whole = unicodedata.normalize("NFC", text) if PRE_TOKENIZERS[pre].nfc else text
        ids = ours.backend.encode(text, add_special_tokens=False).ids
        assert ours.backend.decode(ids, skip_special_tokens=False) == whole


SPLITS = {
    "gpt-2": ("it's 1234  x", ["it", "'s", " 1234", " ", " x"]),
    "smollm": ("it's 123  x", ["it", "'s", " ", "1", "2", "3", " ", " x"]),
    "command-r": ("e\u0301 12", ["é", " ", "1", "2"]),
    "llama-bpe": ("IT'S 1234!\n\n x", ["IT", "'S", " ", "123", "4", "!\n\n", " x"]),
    "qwen2": ("e\u0301\u0300x 12", ["é", "\u0300x", " ", "1", "2"]),
    "qwen35": ("e\u0301\u0300x 12", ["é\u0300x", " ", "1", "2"]),
    "tekken": ("HelloWorld's 12", ["Hello", "World", "'s", " ", "1", "2"]),
    "gpt-4o": ("HelloWorld's 1234/\n/", ["Hello", "World's", " ", "123", "4", "/\n/"]),
    "kimi-k2": ("ab漢字cd 1234", ["ab", "漢字", "cd", " ", "123", "4"]),
    "deepseek-v3": ("(a) 漢字b 1234", ["(a", ")", " ", "漢字", "b", " ", "123", "4"]),
    "deepseek-llm": ("a漢字, 12", ["a", "漢字", ",", " ", "1", "2"]),
    "deepseek-coder": ("a漢字, 12", ["a", "漢字", ",", " ", "1", "2"]),
    "falcon": ("it's 12345.", ["it", "'", "s", " ", "123", "45", "."]),
    "tiny_aya": ("1234567", ["1", "234", "567"]),
    "afmoe": ("1234567 漢字a", ["1", "234", "567", " ", "漢字", "a"]),
    "bailingmoe": ("a \n\nb", ["a", " \n\n", "b"]),
    "seed-coder": ("a;\n\nb 12", ["a", ";", "\n\n", "b", " ", "1", "2"]),
    "minicpm5": ("ab 1234", ["ab", " ", "123", "4"]),
    "exaone-moe": ("a b1", ["a b", "1"]),
    "laguna": ("a;\nb", ["a", ";", "\n", "b"]),
    "ufakzeka": ("it's", ["it", "'s"]),
    "bloom": ("a, b", ["a", ",", " b"]),
    "superbpe": ("a b 1234567", ["a b ", "1", "234", "567"]),
    "viking": ("a, b12", ["a", ",", " b", "1", "2"]),
    "youtu": ("한국漢字…ab1", ["한국", "漢字", "…", "ab", "1"]),
}


@pytest.mark.parametrize("pre", SPLITS)
def test_pre_tokenizers_split_where_their_models_do(pre: str) -> None:
    text, parts = SPLITS[pre]
    backend = of(bytewise(pre)).backend
    text = backend.normalizer.normalize_str(text) if backend.normalizer else text
    assert isinstance(backend, Library)
    assert backend.pre_tokenizer is not None
    assert [text[start:end] for _, (start, end) in backend.pre_tokenizer.pre_tokenize_str(text)] == parts


def test_a_piece_that_is_a_token_stays_whole_where_merges_do_not_count() -> None:
    for pre, whole in (("llama-bpe", True), ("tekken", True), ("gpt-2", False), ("qwen2", False)):
        metadata = {**bytewise(pre), "tokenizer.ggml.merges": ["t h"]}
        ids = of(metadata).encode("the")
        assert (ids == [257]) is whole


def test_types_say_which_tokens_are_added_and_special() -> None:
    ours = of(bytewise())
    assert {token: one.special for token, one in ours.added.items()} == {259: True, 260: True, 261: False}
    assert "[PAD262]" not in ours.vocabulary
    assert ours.vocabulary["<|endoftext|>"] == 264
    assert ours.as_it_stands("the<tool><|im_end|>") == [257, 261, 260]
    assert ours.backend.decode([257, 261, 260]) == "the<tool>"


def test_ends_are_those_of_the_keys_and_known_special_tokens() -> None:
    assert stop_tokens(bytewise(), FILE) == {260}
    assert stop_tokens(bytewise(eos_token_id=264), FILE) == {260, 264}  # <|im_end|> by its text
    assert stop_tokens(bytewise(eot_token_id=261, eom_token_id=264), FILE) == {260, 261, 264}
    assert of(bytewise(eos_token_id=264)).eos == {264}
    assert of(bytewise(eos_token_id=264)).added[264].special


def test_texts_without_a_template_begin_and_end_as_the_file_says() -> None:
    ids = {"bos_token_id": 259}
    assert of(bytewise(**ids)).as_it_stands("the") == [257]
    assert of(bytewise("llama-bpe", **ids)).as_it_stands("the") == [259, 257]
    assert of(bytewise("llama-bpe", **ids, add_bos_token=False)).as_it_stands("the") == [257]
    assert of(bytewise(**ids, add_bos_token=True, add_eos_token=True)).as_it_stands("the") == [259, 257, 260]
    assert of(bytewise(add_bos_token=True)).as_it_stands("the") == [257]
    assert of(bytewise(bos_token_id=(1 << 32) - 1)).special == {"eos_token": "<|im_end|>"}


def test_added_tokens_of_phi_3_take_the_spaces_behind_them() -> None:
    backend = pieces(True)
    metadata = {**metadata_of_pieces(backend), "general.architecture": "phi3"}
    texts, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    metadata |= {
        "tokenizer.ggml.tokens": [*texts, "<|user|>"],  # type: ignore[misc]
        "tokenizer.ggml.token_type": [*types, 3],  # type: ignore[misc]
        "tokenizer.ggml.scores": [0.0] * (len(texts) + 1),  # type: ignore[arg-type]
    }
    ours = of(metadata)
    assert ours.as_it_stands("<|user|>\nthe") == ours.as_it_stands("<|user|>the")
    assert ours.as_it_stands("<s>\nthe") != ours.as_it_stands("<s>the")


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def test_the_template_is_the_files() -> None:
    ours = of({**bytewise(), "tokenizer.chat_template": TEMPLATE, "tokenizer.chat_template.tools": "x"})
    assert ours.source.text == TEMPLATE
    assert ours.prompt([Message("user", "the")]).count(257) == 1
    assert of(bytewise()).source.unsupported == "this file has no chat template"
    other = of({**bytewise(), "tokenizer.chat_template.tools": "x"})
    assert other.source.text is None
    assert "named tools" in other.source.unsupported


LONG = "x" * 2000
WRONG: Mapping[str, tuple[dict[str, object], str]] = {
    "no tokenizer": ({"model": None}, "holds no tokenizer"),
    "none": ({"model": "none"}, "holds no tokenizer"),
    "bert": ({"model": "bert"}, "tokenizer.ggml.model is 'bert'"),
    "t5": ({"model": "t5"}, "tokenizer.ggml.model is 't5'"),
    "rwkv": ({"model": "rwkv"}, "tokenizer.ggml.model is 'rwkv'"),
    "plamo2": ({"model": "plamo2"}, "tokenizer.ggml.model is 'plamo2'"),
    "unknown": ({"pre": "somebodys-own"}, "tokenizer.ggml.pre is 'somebodys-own', which is not read here. Run it"),
    "encoder": ({"pre": "jina-v2-en"}, "tokenizer.ggml.pre is 'jina-v2-en'"),
    "unnamed": ({"pre": None}, "does not name its pre-tokenizer"),
    "default": ({"pre": "default"}, "does not name its pre-tokenizer"),
    "number as name": ({"pre": 7}, "tokenizer.ggml.pre is 7, not a text"),
    "no tokens": ({"tokens": None}, "tokenizer.ggml.tokens is missing or empty"),
    "no list": ({"tokens": "abc"}, "tokenizer.ggml.tokens is no list of texts"),
    "numbers": ({"tokens": [1, 2]}, "tokenizer.ggml.tokens is no list of texts"),
    "no UTF-8": ({"tokens": ["a", "\udcff"]}, "tokenizer.ggml.tokens has a text that is not UTF-8"),
    "long": ({"tokens": ["a", LONG], "token_type": [1, 1]}, "tokenizer.ggml.tokens has a token of 2,000 characters"),
    "twice": ({"tokens": ["a", "a"], "token_type": [1, 1], "eos_token_id": 1}, "tokenizer.ggml.tokens has 'a' twice"),
    "no types": ({"token_type": None}, "tokenizer.ggml.token_type is missing"),
    "few types": ({"token_type": [1]}, "tokenizer.ggml.token_type has 1 numbers for 265 tokens"),
    "types as texts": ({"token_type": ["1"]}, "tokenizer.ggml.token_type is no list of numbers"),
    "no merges": ({"merges": None}, "tokenizer.ggml.merges is missing or empty"),
    "merge of no token": ({"merges": ["t h", "q q"]}, "tokenizer.ggml.merges has 'q q', which makes no token"),
    "merge of one": ({"merges": ["th"]}, "tokenizer.ggml.merges has"),
    "merge of no part": ({"merges": ["Ġth e"]}, "cannot be used"),
    "no number": ({"eos_token_id": "x"}, "tokenizer.ggml.eos_token_id is 'x', not the number of a token"),
    "beyond": ({"eos_token_id": 9999}, "tokenizer.ggml.eos_token_id is 9999, of 265 tokens"),
    "below": ({"bos_token_id": -7}, "tokenizer.ggml.bos_token_id is -7, of 265 tokens"),
    "no switch": ({"add_bos_token": "yes"}, "tokenizer.ggml.add_bos_token is 'yes', not true or false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_refused_in_words(case: str) -> None:
    changed, words = WRONG[case]
    metadata = {**bytewise(), **{f"tokenizer.ggml.{key}": value for key, value in changed.items()}}
    with pytest.raises(ModelError) as error:
        tokenizer_files({key: value for key, value in metadata.items() if value is not None}, FILE)
    assert words in str(error.value)
    assert str(error.value).startswith("model.gguf")


@pytest.mark.parametrize("scores", [None, [0.0], [float("nan")] * 600, ["0"] * 600, 3])
def test_pieces_without_scores_are_refused(scores: object) -> None:
    metadata = metadata_of_pieces(pieces(True), scores=scores)
    with pytest.raises(ModelError, match=r"^model\.gguf: tokenizer\.ggml\.scores "):
        tokenizer_files({key: value for key, value in metadata.items() if value is not None}, FILE)


def test_a_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.chat_template is no text"):
        tokenizer_files({**bytewise(), "tokenizer.chat_template": 3}, FILE)


def real_files() -> list[Path]:
    """The GGUF files that SPECCHAT_REAL names: one, or a folder of them."""
    named = os.environ.get("SPECCHAT_REAL")
    path = Path(named) if named else None
    return [] if path is None else sorted(path.glob("**/*.gguf")) if path.is_dir() else [path]


@pytest.mark.skipif(not real_files(), reason="needs SPECCHAT_REAL, a GGUF file or a folder of them")
@pytest.mark.parametrize("file", real_files(), ids=lambda path: path.name)
def test_a_real_file_is_read_without_loss(file: Path) -> None:
    """Beside vocabularies of llama.cpp's own tests lie texts with the tokens that the models' tokenizers give."""
    try:
        files = tokenizer_files(metadata_of(read_header(file)), file)
    except ModelError as error:
        pytest.skip(str(error))
    ours = Tokenizer(files.backend, files.file, files.special, files.template)
    marks = [one.content for one in ours.added.values()]
    for text in TEXTS:
        if any(mark in text for mark in marks):
            continue
        normal = ours.backend.normalizer is not None and "▁" not in ours.backend.normalizer.normalize_str(" ")
        whole = unicodedata.normalize("NFC", text) if normal else text
        assert ours.decode(ours.encode(text)) == whole
    if ours.template is not None:
        prompt = ours.prompt([Message("user", "the")])
        assert ours.eos
        assert "the" in ours.decode(prompt)
    texts, tokens = (file.with_name(f"{file.name}.{end}") for end in ("inp", "out"))
    if texts.exists():
        asked = texts.read_bytes().decode().split("\n__ggml_vocab_test__\n")
        given = [[int(token) for token in line.split()] for line in tokens.read_text().splitlines()]
        for text, ids in zip(asked, given, strict=False):
            if unicodedata.is_normalized("NFC", text):  # llama.cpp does not normalise
                assert ours.backend.encode(text, add_special_tokens=False).ids == ids
