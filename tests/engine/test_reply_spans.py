"""Reasoning and answer told apart by tokens: marks that are tokens, marks that are spelt, channels."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from specchat.engine.protocol.options import Written
from specchat.engine.reply.pieces import ReplyText
from specchat.engine.text.spans import ReplySpans
from specchat.engine.text.template import TemplateSource
from specchat.engine.text.text_stream import TextStream
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine import tiny

HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|constrain|>"]
GEMMA = ["<|turn>", "<turn|>", "<|channel>", "<channel|>"]
SPECIAL = ["[THINK]", "[/THINK]", "<|mull_begin|>", "<|mull_end|>"]
VISIBLE = ["<think>", "</think>", "<mull>", "</mull>"]
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def made(template: str, special: Sequence[str] = (), visible: Sequence[str] = ()) -> Tokenizer:
    backend = tiny.tokenizer([*tiny.SPECIAL, *special])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in visible])
    return Tokenizer(backend, Path("here"), {}, TemplateSource(template, Path("here")))


def read(tokenizer: Tokenizer, text: str, *, complete: bool = True, every: int = 1) -> Written:
    """What a reply of these tokens says, taken every so many of them."""
    out = ReplyText(ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format), ())
    spans, before = list[tuple[str, bool]](), False
    for number, token in enumerate(tokenizer.backend.encode(text, add_special_tokens=False).ids):
        out.push(token, "plain")
        if number % every == 0:
            turned = out.turned
            spans = [(text, reasoning or (turned and not before)) for text, reasoning in spans]
            spans += [(piece.text, piece.reasoning) for piece in out.take()]
            before = turned
    spans = [(text, reasoning or (out.turned and not before)) for text, reasoning in spans]
    spans += [(piece.text, piece.reasoning) for piece in out.finish(complete=complete)]
    assert Written.of(spans) == out.written
    return Written.of(spans, thinking=out.thinking)


def parts(tokenizer: Tokenizer, text: str, *, complete: bool = True) -> tuple[str, str, bool]:
    written = read(tokenizer, text, complete=complete)
    return written.thoughts, written.answer, written.thinking


def test_marks_that_are_special_tokens_count_anywhere() -> None:
    tokenizer = made(PLAIN, SPECIAL)
    assert parts(tokenizer, "[THINK]hm[/THINK]Yes.") == ("hm", "Yes.", False)
    assert parts(tokenizer, "So[THINK]hm[/THINK] yes.") == ("hm", "So yes.", False)
    assert parts(tokenizer, "[THINK]hm", complete=False) == ("hm", "", True)


def test_marks_that_are_visible_tokens_count_at_the_start_and_after_reasoning() -> None:
    tokenizer = made(PLAIN, visible=VISIBLE)
    assert parts(tokenizer, "\n<think>\na</think>\n<think>b</think>\n\nc") == ("\nab", "c", False)
    assert parts(tokenizer, "The mark <think>is</think> such.") == ("", "The mark <think>is</think> such.", False)


def test_a_closing_mark_that_is_spelt_is_text_where_it_is_a_token() -> None:
    tokenizer = made(PLAIN, visible=VISIBLE)
    think, end = (tokenizer.backend.token_to_id(mark) for mark in ("<think>", "</think>"))
    assert think is not None
    assert end is not None
    spelt = made(PLAIN).backend.encode("the mark </think> ends it", add_special_tokens=False).ids
    out = ReplyText(ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format), ())
    for token in (think, *spelt, end, *tokenizer.backend.encode("So.").ids):
        out.push(token, "plain")
    out.finish()
    assert (out.written.thoughts, out.written.answer) == ("the mark </think> ends it", "So.")


@pytest.mark.parametrize("every", [1, 3, 100])
def test_marks_that_are_no_tokens_are_read_as_text(every: int) -> None:
    tokenizer = made(PLAIN)
    assert read(tokenizer, "<think>hm</think>Yes.", every=every) == Written("hmYes.", ((0, 2),))
    assert read(tokenizer, "<thin ice", every=every) == Written("<thin ice")
    assert read(tokenizer, "<think>a < b </thin", every=every).thoughts == "a < b </thin"
    assert read(tokenizer, "<think>a </thin", complete=False, every=every).thoughts == "a "


def test_marks_of_a_family_that_nobody_named_are_found_in_its_template() -> None:
    """By its field for earlier reasoning, by the end of its prompt, by what it strips."""
    field = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<mull>{{ m.reasoning_content }}</mull>"
        "{% endif %}{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    opened = tiny.TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|><|mull_begin|>\n{% endif")
    strips = tiny.TEMPLATE.replace("{{ m.content }}", "{{ m.content.split('</mull>')[-1] }}") + "{# <mull> #}"
    assert parts(made(field, visible=VISIBLE), "<mull>hm</mull>Yes.") == ("hm", "Yes.", False)
    assert parts(made(field), "<mull>hm</mull>Yes.") == ("hm", "Yes.", False)
    assert parts(made(strips, visible=VISIBLE), "<mull>hm</mull>Yes.") == ("hm", "Yes.", False)
    begun = made(opened, SPECIAL)
    assert parts(begun, "hm<|mull_end|>Yes.") == ("hm", "Yes.", False)
    assert parts(begun, "hm", complete=False) == ("hm", "", True)


def test_an_opening_mark_that_the_prompt_has_already_is_no_text() -> None:
    opened = tiny.TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif")
    assert parts(made(opened, visible=VISIBLE), "<think>\nhm</think>Yes.") == ("\nhm", "Yes.", False)


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_closing_mark_that_nothing_opened_makes_reasoning_of_what_was_an_answer(every: int) -> None:
    """As of a thinking model whose template has lost the opening mark."""
    tokenizer = made(PLAIN, ["[THINK]", "[/THINK]"], VISIBLE)
    assert parts(tokenizer, "I think.\n</think>\n\nMice.") == ("I think.\n", "Mice.", False)
    assert parts(tokenizer, "I think.</think>Mice.</think>") == ("I think.", "Mice.</think>", False)
    assert parts(tokenizer, "I think. </think>Mice.") == ("I think. ", "Mice.", False)
    assert parts(tokenizer, "I think[/THINK]Mice") == ("I think", "Mice", False)
    assert parts(tokenizer, "The mark </think> ends it.") == ("", "The mark </think> ends it.", False)
    assert read(tokenizer, "I think.\n</think>Mice.", every=every) == Written("I think.\nMice.", ((0, 9),))


@pytest.mark.parametrize("thought", ["<think>hm, so</think>", "I think.\n</think>", ""])
def test_tokens_of_reasoning_are_counted_with_their_marks(thought: str) -> None:
    tokenizer = made(PLAIN, visible=VISIBLE)
    out = ReplyText(ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format), ())
    before, after = (tokenizer.backend.encode(text, add_special_tokens=False).ids for text in (thought, "So be it."))
    for token in (*before, *after):
        out.push(token, "plain")
    assert out.reasoning_tokens == len(before)


def test_channels_of_harmony() -> None:
    template = tiny.TEMPLATE.replace("<|assistant|>{% endif", "<|start|>assistant{% endif")
    tokenizer = made(template, HARMONY)
    begin = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    assert parts(tokenizer, f"{begin}<|channel|>final<|message|>Yes.") == ("hm", "Yes.", False)
    assert parts(tokenizer, f"{begin}<|channel|>commentary<|message|>I look.<|end|>") == ("hm", "I look.", False)
    again = f"{begin}<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>"
    assert parts(tokenizer, f"{again}final <|constrain|>json<|message|>1") == ("hmso", "1", False)
    assert parts(tokenizer, "<|channel|>final<|message|>Yes.") == ("", "Yes.", False)
    assert parts(tokenizer, "<|message|>Yes.") == ("", "Yes.", False)
    assert parts(tokenizer, f"{begin}<|channel|>fin", complete=False) == ("hm", "", False)
    assert parts(tokenizer, f"{begin} to=self<|message|>so") == ("hmso", "", True)


def test_a_header_that_never_ends_is_an_answer() -> None:
    template = tiny.TEMPLATE.replace("<|assistant|>{% endif", "<|start|>assistant{% endif")
    tokenizer = made(template, HARMONY)
    assert parts(tokenizer, "Yes, it is.") == ("", "Yes, it is.", False)
    assert parts(tokenizer, "Yes. " * 100) == ("", "Yes. " * 100, False)


def test_channels_of_gemma() -> None:
    tokenizer = made(PLAIN, GEMMA)
    assert parts(tokenizer, "<|channel>thought\nhm\nso<channel|>Yes.") == ("hm\nso", "Yes.", False)
    assert parts(tokenizer, "<|channel>thought\n<channel|>Yes.") == ("", "Yes.", False)
    assert parts(tokenizer, "Yes.") == ("", "Yes.", False)


MIXED = [
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<thi",
    "</th",
    "ink>",
    " ",
    "\n",
    "word",
    "é",
    "<|channel>",
    "x",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(MIXED), max_size=12).map("".join), st.integers(1, 7), st.booleans())
def test_what_is_read_does_not_depend_on_when_it_is_taken(text: str, every: int, complete: bool) -> None:
    tokenizer = BOTH
    assert read(tokenizer, text, every=every, complete=complete) == read(tokenizer, text, complete=complete)


BOTH = made(PLAIN, ["[THINK]", "[/THINK]"])
