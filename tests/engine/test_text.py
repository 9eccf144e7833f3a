"""Tokens to text: the tokenizer, chat templates, and pieces that are whole graphemes."""

from pathlib import Path

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer

from specchat.engine.protocol.events import Piece
from specchat.engine.protocol.options import Message
from specchat.engine.reply.pieces import ReplyText
from specchat.engine.text.spans import ReplySpans
from specchat.engine.text.template import TemplateSource, compile_template, render
from specchat.engine.text.text_stream import TextStream
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine import tiny
from tests.engine.tiny import checkpoint

CHAT = (
    Message("system", "Be brief."),
    Message("user", "Hi\n there "),
    Message("assistant", "Yes?"),
    Message("user", "é"),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.read(checkpoint(tmp_path_factory.mktemp("model") / "m", num_hidden_layers=1))


def reply_text(tokenizer: Tokenizer, stop: tuple[str, ...] = ()) -> ReplyText:
    """Collects an answer."""
    return ReplyText(ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format, "answer"), stop)


def pushed(
    tokenizer: Tokenizer, text: str, stop: tuple[str, ...] = (), every: int = 1
) -> tuple[list[Piece], ReplyText]:
    """Bytes of `text` as tokens, source i % 3, taken every so many tokens."""
    out = reply_text(tokenizer, stop)
    pieces: list[Piece] = []
    for i, token in enumerate(tokenizer.backend.encode(text, add_special_tokens=False).ids):
        done = out.push(token, ("draft", "target", "bonus")[i % 3])
        if done:
            break
        if i % every == 0:
            pieces += out.take()
    return [*pieces, *out.finish()], out


@settings(max_examples=200)
@given(text=st.text(), every=st.integers(1, 9))
def test_any_text_comes_out_whole(tokenizer: Tokenizer, text: str, every: int) -> None:
    assume("<|" not in text)  # a special token's name is no text to the backend
    pieces, out = pushed(tokenizer, text, every=every)
    assert "".join(p.text for p in pieces) == out.text == text


@settings(max_examples=100)
@given(
    parts=st.lists(
        st.sampled_from(["e\u0301", "👨\u200d👩\u200d👧", "🇫🇷", "한", "a", " ", "ß", "\u0928\u093f"]), max_size=12
    )
)
def test_no_piece_cuts_a_grapheme_that_is_not_begun_in_ascii(tokenizer: Tokenizer, parts: list[str]) -> None:
    pieces, _ = pushed(tokenizer, "".join(parts))
    text = "".join(p.text for p in pieces)
    starts = {m.start() for m in regex.finditer(r"\X", text)}
    at = 0
    for piece in pieces:
        assert at in starts or text[at - 1].isascii()
        at += len(piece.text)


def test_a_grapheme_of_several_tokens_takes_the_last_source(tokenizer: Tokenizer) -> None:
    pieces, _ = pushed(tokenizer, "é")  # two bytes: draft, then target
    assert pieces == [Piece("é", "target")]


def test_each_token_of_a_step_has_its_position(tokenizer: Tokenizer) -> None:
    out = reply_text(tokenizer)
    for position, (token, source) in enumerate(
        zip(ids(tokenizer, "abé"), ("draft", "draft", "draft", "bonus"), strict=True)
    ):
        out.push(token, source, position)
    step = out.take()
    assert step == (Piece("a", "draft", position=0), Piece("b", "draft", position=1))
    out.push(ids(tokenizer, "c")[0], "draft", 0)
    out.push(ids(tokenizer, "d")[0], "target", 1)
    held, *rest = out.take()  # a combining mark might have followed
    assert held == Piece("é", "bonus")
    assert rest == [Piece("c", "draft", position=0), Piece("d", "target", position=1)]


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.backend.encode(text, add_special_tokens=False).ids


@settings(max_examples=100)
@given(steps=st.lists(st.text("aé\u0301#\n", min_size=1, max_size=6), max_size=6))
def test_positions_are_of_the_step_and_in_order(tokenizer: Tokenizer, steps: list[str]) -> None:
    out = reply_text(tokenizer, ("#\n#",))
    for text in steps:
        tokens = ids(tokenizer, text)
        ended = any(out.push(token, "draft", position) for position, token in enumerate(tokens))
        positions = [piece.position for piece in (out.finish() if ended else out.take())]
        known = [position for position in positions if position is not None]
        assert known == sorted(set(known))
        assert all(position < len(tokens) for position in known)
        assert positions[len(positions) - len(known) :] == known  # held back text comes first
        if ended:
            break


@settings(max_examples=200)
@given(text=st.text("ab#\n", max_size=40), stops=st.lists(st.text("ab#\n", min_size=1, max_size=4), max_size=3))
def test_stop_strings_never_show(tokenizer: Tokenizer, text: str, stops: list[str]) -> None:
    _, out = pushed(tokenizer, text, tuple(stops))
    # The first stop string to be complete wins, at its earliest place.
    expected = text
    for end in range(1, len(text) + 1):
        found = [text[:end].find(s) for s in stops if s in text[:end]]
        if found:
            expected = text[: min(found)]
            break
    assert out.text == expected


def test_a_character_cut_short_is_left_out(tokenizer: Tokenizer) -> None:
    out = reply_text(tokenizer)
    for token in tokenizer.backend.encode("aé").ids[:2]:
        out.push(token, "plain")
    assert out.take() == (Piece("a", "plain"),)
    assert out.finish() == ()
    assert out.text == "a"


def test_special_tokens_in_a_raw_prompt_are_tokens(tokenizer: Tokenizer) -> None:
    text = "a<|end|>b"
    assert tokenizer.as_it_stands(text) == tokenizer.backend.encode(text).ids
    assert tokenizer.eos & set(tokenizer.as_it_stands(text))


def test_special_tokens_in_a_message_are_text(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.prompt([Message("user", "a<|end|><|system|>b")])
    ends = [t for t in tokens if t in tokenizer.eos]
    assert len(ends) == 1
    assert "<\u200b|end|>" in tokenizer.decode(tokens)


def test_a_prefill_is_read_as_the_reply_it_begins(tokenizer: Tokenizer) -> None:
    whole = tokenizer.prompt([*CHAT, Message("assistant", "Well <|end|> é")])
    begun = tokenizer.prompt(CHAT, "Well <|end|> é")
    assert begun == whole[: len(begun)]
    assert begun[-1] not in tokenizer.eos
    assert tokenizer.decode(begun).endswith("Well <\u200b|end|> é")


def test_chat_and_prefill_are_encoded_as_one_text() -> None:
    """A newline that ends the template and one that begins the prefill may be one token."""
    merging = tiny.tokenizer()
    merging.add_tokens(["\n\n"])
    every = '{% for m in messages %}{{ m.content + "\\n" }}{% endfor %}'
    made = Tokenizer(merging, Path("here"), {}, TemplateSource(every, Path("here")))
    assert made.prompt([Message("user", "a")], "\nb")[1] == merging.token_to_id("\n\n")


def test_without_a_template_a_prefill_follows_the_text(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "template", None)
    assert tokenizer.decode(tokenizer.prompt([Message("user", "One"), Message("user", "Two")], " three")) == (
        "One\nTwo three"
    )


def test_a_token_alone_has_a_text(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.backend.encode("é").ids
    (space,) = tokenizer.backend.encode(" ").ids
    assert [tokenizer.text_of(token) for token in (first, second, space, *tokenizer.eos)] == [
        "\ufffd",
        "\ufffd",
        " ",
        "<|end|>",
    ]


def test_a_token_that_begins_a_word_keeps_its_space(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders of the SentencePiece kind take the first space off a text."""
    backend = Backend(models.BPE(vocab={"▁": 0, "a": 1, "▁a": 2, "b": 3, "▁b": 4, "<0xC3>": 5}, merges=[("▁", "a")]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    monkeypatch.setattr(tokenizer, "backend", backend)
    monkeypatch.setattr(tokenizer, "_before", backend.encode("a").ids)
    monkeypatch.setattr(tokenizer, "_texts", {})
    assert [tokenizer.text_of(token) for token in (4, 3, 5, 4)] == [" b", "b", "\ufffd", " b"]


@pytest.fixture
def falling_back(tmp_path: Path) -> Tokenizer:
    """A tokenizer in the layout of Llama 2 and Mistral."""
    return Tokenizer.read(checkpoint(tmp_path / "m", backend=tiny.byte_fallback(), num_hidden_layers=1))


def spelt(tokenizer: Tokenizer, data: bytes) -> str:
    """What a stream shows of bytes that come one token each."""
    stream = TextStream(tokenizer)
    return "".join([*(stream.push(tiny.FIRST_BYTE + byte) for byte in data), stream.flush()])


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("é👨‍👩‍👧한\n".encode(), "é👨‍👩‍👧한\n"),
        (b"\n\xff", "\n"),
        (b"\n\xf0\x9f\x98", "\n"),
        (b"x" + b"\xff" * 40, "x" + "\ufffd" * 32),
    ],
)
def test_bytes_that_are_no_characters_show_as_replacement_but_at_the_end(
    falling_back: Tokenizer, data: bytes, shown: str
) -> None:
    assert spelt(falling_back, data) == shown


def test_a_stream_goes_on_after_invalid_bytes(falling_back: Tokenizer) -> None:
    stream = TextStream(falling_back)
    newline, invalid, word = tiny.FIRST_BYTE + 10, tiny.FIRST_BYTE + 255, 2
    assert [stream.push(t) for t in (word, newline, invalid, word, word)] == [" a", "\n", "", "\ufffd a", " a"]


def reasoning_tokenizer(folder: Path) -> Tokenizer:
    """In the layout of Qwen3: <think> and <tool_call> are added tokens that are not special; and a special one of one
    character, words and spaces that were added."""
    backend = tiny.tokenizer([*tiny.SPECIAL, "☃"])
    marks = ["<think>", "</think>", "<tool_call>", "[THINK]"]
    backend.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks])
    backend.add_tokens(["hello", "\n\n", "--------"])
    backend.normalizer = normalizers.NFC()
    return Tokenizer.read(checkpoint(folder, backend=backend, num_hidden_layers=1))


def test_what_users_type_never_becomes_a_marker(tmp_path: Path) -> None:
    tokenizer = reasoning_tokenizer(tmp_path / "m")
    typed = "a<think>b</think><tool_call>☃[THINK][THINK] hello\n\n--------"
    markers = {i for i, t in tokenizer.backend.get_added_tokens_decoder().items() if t.content in tokenizer.markers}
    for role in ("system", "user"):
        empty, full = (tokenizer.prompt([Message(role, text)]) for text in ("", typed))  # type: ignore[arg-type]
        assert [i for i in full if i in markers] == [i for i in empty if i in markers]
    shown = tokenizer.decode(tokenizer.prompt([Message("user", typed)]))
    assert shown.replace("​", "") == "a<think>b</think><tool_call>�[THINK][THINK] hello\n\n--------"
    words = tokenizer.prompt([Message("user", "hello\n\n--------")])
    assert {tokenizer.backend.token_to_id(word) for word in ("hello", "\n\n", "--------")} <= set(words)


def test_marks_in_a_reply_without_reasoning_are_text_in_the_next_prompt(tmp_path: Path) -> None:
    tokenizer = reasoning_tokenizer(tmp_path / "m")
    think, end = (tokenizer.backend.token_to_id(t) for t in ("<think>", "<|end|>"))
    chat = [Message("user", "a"), Message("assistant", "c<think>b</think><|end|>"), Message("user", "d")]
    tokens = tokenizer.prompt(chat, "<think>")
    assert tokens.count(think) == 0
    assert tokens.count(end) == len(chat)


def test_the_demo_layout_equals_transformers(tokenizer: Tokenizer) -> None:
    theirs = AutoTokenizer.from_pretrained(tokenizer.file.parent)
    turns = [{"role": m.role, "content": m.content} for m in CHAT]
    assert tokenizer.prompt(CHAT) == theirs.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]


@pytest.mark.parametrize("name", ["qwen2.5_hf", "llama3_hf"])
def test_published_tokenizers_and_templates_equal_transformers(name: str, shared_data: Path) -> None:
    folder = shared_data / "tokenizers" / name
    theirs = AutoTokenizer.from_pretrained(folder)
    turns = [{"role": m.role, "content": m.content} for m in CHAT]
    expected = theirs.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
    mine = Tokenizer.read(folder)
    assert mine.prompt(CHAT) == expected
    text = "naïve 你好 👨\u200d👩\u200d👧 def f(x):\n\treturn x  # ok"
    ids = mine.backend.encode(text, add_special_tokens=False).ids
    stream = TextStream(mine)
    assert "".join(stream.push(t) for t in ids) + stream.flush() == text


def test_real_templates_render_as_in_transformers(shared_data: Path) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "é"},
    ]
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    files = sorted((shared_data / "tokenizers" / "templates").glob("*.jinja"))
    compared = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        try:
            theirs = render_jinja_template([turns], chat_template=source, add_generation_prompt=True, **special)[0][0]
        except Exception:
            theirs = None  # refused there; it must be refused here too
        try:
            mine = render(compile_template(source, file.name), turns, special)
        except Exception:
            mine = None
        assert mine == theirs, file.name
        compared += theirs is not None
    assert compared > 40


def of_pieces() -> Tokenizer:
    """Has a token that is a space and the first byte of a character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={c: i for i, c in enumerate([*alphabet, "ĠÃ"])}, merges=[("Ġ", "Ã")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, Path("here"), {}, TemplateSource(None, Path("here")))


PIECES = of_pieces()


@settings(max_examples=200)
@given(
    text=st.text("ab \n<é", max_size=30),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=2).map(tuple),
    data=st.data(),
)
def test_a_reply_that_was_cut_goes_on_to_the_same_text(text: str, stops: tuple[str, ...], data: st.DataObject) -> None:
    """Inside of characters and stop strings too."""
    tokens = PIECES.backend.encode(text).ids
    whole = reply_text(PIECES, stops)
    wanted = next((n for n, token in enumerate(tokens, 1) if whole.push(token, "plain")), len(tokens))
    whole.finish()
    at = data.draw(st.integers(0, wanted))
    cut = reply_text(PIECES, stops)
    assume(not any(cut.push(token, "plain") for token in tokens[:at]))
    cut.finish(complete=False)
    rest = reply_text(PIECES, stops)
    rest.resume(cut.written, tokens[:at])
    written = next((n for n, token in enumerate(tokens[at:], at + 1) if rest.push(token, "plain")), len(tokens))
    rest.finish()
    assert written == wanted
    assert cut.text[: len(cut.text) - rest.taken_back] + rest.text == whole.text
