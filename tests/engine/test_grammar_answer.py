"""Where a grammar begins and ends: after reasoning, in the channel of the answer, at the end of a reply."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from string import ascii_letters

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from specchat.engine.errors import EngineError
from specchat.engine.grammar.answer import AnswerConstraint
from specchat.engine.grammar.compiler import Grammars
from specchat.engine.grammar.source import MAX_CHARACTERS, HeldTo
from specchat.engine.grammar.stepped import SteppedConstraint
from specchat.engine.loading import load
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import (
    NOTHING_WRITTEN,
    Grammar,
    Limits,
    Message,
    Sampling,
    Speculation,
    Tool,
    Written,
)
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.text.spans import MAX_HEADER_CHARS, ReplySpans
from specchat.engine.text.template import TemplateSource
from specchat.engine.text.text_stream import TextStream
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.tool_calls.forced import forced_calls
from specchat.engine.tool_calls.form import CallForm
from tests.engine import tiny
from tests.engine.grammars import GRAMMARS, ending, fits
from tests.engine.scripted import scripted
from tests.engine.test_lossless import HEADLESS, finished
from tests.engine.test_reply_spans import GEMMA, HARMONY, PLAIN, SPECIAL, VISIBLE, made

NUMBER = Grammar("json_schema", '{"type": "integer", "minimum": 10, "maximum": 99}')
END = "<|end|>"
CHANNELLED = tiny.TEMPLATE.replace("<|assistant|>{% endif", "<|start|>assistant{% endif")
OPENED = tiny.TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif")


def constraint(
    tokenizer: Tokenizer, grammar: Grammar = NUMBER, written: Written = NOTHING_WRITTEN, *, whole: bool = False
) -> AnswerConstraint:
    spans = ReplySpans(TextStream(tokenizer), tokenizer.reply_marks, tokenizer.format, "answer" if written.text else "")
    end = tokenizer.backend.token_to_id("<|return|>") or tokenizer.backend.token_to_id(END)
    request = Generate(1, (), begun=written)
    found = Grammars(tokenizer).constraint(request, HeldTo(grammar, whole=whole), spans, frozenset({end}))
    assert isinstance(found, AnswerConstraint)
    return found


def allowed(tokenizer: Tokenizer, held: SteppedConstraint) -> set[int]:
    columns = tokenizer.size + 40
    words = held.allowed(columns)
    if words is None:
        return set(range(columns))
    bits = np.unpackbits(words.view(np.uint8), bitorder="little", count=columns)
    return set(bits.nonzero()[0].tolist())


def takes(tokenizer: Tokenizer, text: str, grammar: Grammar = NUMBER, *, whole: bool = False) -> bool:
    """True if all tokens of a reply are allowed, one after the other."""
    held = constraint(tokenizer, grammar, whole=whole)
    for token in tokenizer.backend.encode(text, add_special_tokens=False).ids:
        if token not in allowed(tokenizer, held):
            return False
        held.push(token)
        assert not held.error
    return True


def test_without_reasoning_the_grammar_begins_at_once() -> None:
    tokenizer = made(PLAIN)
    assert takes(tokenizer, f"42{END}")
    for text in ("x", "\n42", "4x", f"4{END}", f"{END}", "421", "<think>"):
        assert not takes(tokenizer, text), text


def test_reasoning_is_free_and_may_be_left_out() -> None:
    """By marks that are special tokens, and by visible ones."""
    for tokenizer, opening, closing in (
        (made(PLAIN, SPECIAL), "[THINK]", "[/THINK]"),
        (made(PLAIN, visible=VISIBLE), "<think>", "</think>"),
    ):
        assert takes(tokenizer, f"42{END}")
        assert takes(tokenizer, f"{opening}\nIt may be 7. {closing}\n\n42{END}")
        assert takes(tokenizer, f"{opening}hm{closing}42{END}")
        for text in (
            f"{opening}hm{END}",
            f"{opening}hm{closing}{END}",
            f"{opening}hm{closing}x",
            f"{opening}hm{closing} 42",
            f"{opening}hm{closing}{opening}",
            f"4{opening}",
            f"4{closing}",
            closing,
        ):
            assert not takes(tokenizer, text), text


def test_a_grammar_of_the_whole_reply_has_its_marks() -> None:
    """Reasoning in the harmony format, then a call that has to be made; the reply ends after it alone."""
    tokenizer = made(CHANNELLED, HARMONY)
    marks = {text: tokenizer.backend.token_to_id(text) for text in HARMONY}
    held = Grammar("lark", forced_calls([Tool("now")], CallForm("channel"), marks))
    thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
    for text in (f"{call}<|return|>", f"{thought}{call}<|return|>", " to=functions.now<|channel|>commentary"):
        assert takes(tokenizer, text, held, whole=True), text
    for text in ("Now.", "<|channel|>final", f"{thought}<|return|>", f"{thought}<|channel|>final", f"{call} "):
        assert not takes(tokenizer, text, held, whole=True), text


def test_no_answer_holds_a_mark() -> None:
    """One that a template knows, though the grammar allows all text, and empty lines only after reasoning."""
    tokenizer, free = made(PLAIN, visible=VISIBLE), Grammar("regex", "(?s:x.*)")
    assert takes(tokenizer, f"x </thin {END}", free)
    assert not takes(tokenizer, "x </think>", free)
    assert not takes(tokenizer, "x<think>", free)
    assert constraint(tokenizer).prefix(tokenizer.encode("\n42")) == 0
    held, mark = constraint(tokenizer, free), tokenizer.backend.token_to_id("</think>")
    held.push(tokenizer.encode("x")[0])
    assert held.prefix([*tokenizer.encode("ab"), mark, *tokenizer.encode("c")]) == 2


def test_forced_text_that_spells_a_mark_is_written_without_its_token() -> None:
    """The usual token of such text is the mark; those of its letters are allowed instead."""
    tokenizer, spelling = made(PLAIN, visible=VISIBLE), Grammar("regex", "a<think>b")
    spelt = made(PLAIN).backend.encode("<think>", add_special_tokens=False).ids
    held = constraint(tokenizer, spelling)
    held.push(*tokenizer.encode("a"))
    for token in (*spelt, *tokenizer.encode("b")):
        assert allowed(tokenizer, held) == {token}
        held.push(token)
    assert not held.error


def test_reasoning_that_the_prompt_opens_comes_first() -> None:
    tokenizer = made(OPENED, visible=VISIBLE)
    assert takes(tokenizer, f"hm 42 so</think>\n\n42{END}")
    assert not takes(tokenizer, f"42{END}")
    assert not takes(tokenizer, "hm</think>so")


def test_reasoning_may_end_in_letters() -> None:
    """A mark that is no token ends within one that begins the answer, or before it."""
    tokenizer = made(OPENED)
    assert takes(tokenizer, f"hm</think>\n\n42{END}")
    assert not takes(tokenizer, "hm</think>x")
    tokenizer.backend.add_tokens([">4", ">x"])  # type: ignore[attr-defined]
    assert takes(tokenizer, f"hm</think>42{END}")


def test_the_channel_of_the_answer_holds_the_grammar() -> None:
    tokenizer = made(CHANNELLED, HARMONY)
    thought = "<|channel|>analysis<|message|>It may be 7.<|end|>"
    final = "<|start|>assistant<|channel|>final<|message|>"
    assert takes(tokenizer, f"{thought}{final}42<|return|>")
    assert takes(tokenizer, f"{thought}<|start|>assistant<|channel|>analysis<|message|>so<|end|>{final}42")
    assert takes(tokenizer, "<|channel|>final<|message|>42")
    for text in ("42", "<|return|>", f"{final}x", f"{final}42<|start|>", f"{final}42{END}"):
        assert not takes(tokenizer, thought + text), text
    gemma = made(PLAIN, GEMMA)
    assert takes(gemma, f"<|channel>thought\nhm<channel|>42{END}")
    assert takes(gemma, f"42{END}")
    assert not takes(gemma, "<|channel>thought\nhm<channel|>x")


def test_what_is_written_already_counts() -> None:
    tokenizer = made(PLAIN, visible=VISIBLE)
    held = constraint(tokenizer, written=Written("4"))
    assert {tokenizer.text_of(token) for token in allowed(tokenizer, held)} == set("0123456789")
    assert constraint(tokenizer, written=Written.of([("hm", True), ("\n\n42", False)])).forced(5)
    with pytest.raises(EngineError, match=r"^The beginning of the reply does not fit the JSON schema\.$"):
        constraint(tokenizer, written=Written("x"))


def test_forced_tokens_end_with_the_reply() -> None:
    tokenizer = made(PLAIN)
    held = constraint(tokenizer, Grammar("regex", "(yes|no), sir"))
    assert held.forced(15) == []
    for token in tokenizer.encode("no"):
        held.push(token)
    sir = [*tokenizer.encode(", sir"), tokenizer.backend.token_to_id(END)]
    assert held.forced(15) == sir
    assert held.forced(3) == sir[:3]
    assert held.prefix([*sir, 1, 2]) == len(sir)
    assert held.prefix([*sir[:2], 0]) == 2
    assert held.forced(15) == sir


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 259), st.sampled_from([-1, -2, -3])), max_size=40))
def test_going_back_undoes_whatever_came(moves: list[int]) -> None:
    """Tokens that are allowed, others, and the end: what may come next depends on the text alone.

    -1 goes back, -3 looks ahead.
    """
    tokenizer = BYTES
    held, text = constraint(tokenizer, GRAMMARS["schema"]), list[int]()
    for move in moves:
        if move == -1 and text:
            held.pop()
            text.pop()
            continue
        token = min(allowed(tokenizer, held)) if move < 0 else move
        if move == -3:
            held.look_ahead([token, 0, token], tokenizer.size + 40, lambda: False)
            continue
        held.push(token)
        text.append(token)
    fresh = constraint(tokenizer, GRAMMARS["schema"])
    for token in text:
        fresh.push(token)
    assert allowed(tokenizer, held) == allowed(tokenizer, fresh)
    assert (held.error, held.forced(15)) == (fresh.error, fresh.forced(15))


BYTES = made(PLAIN)


def test_masks_that_were_looked_at_ahead_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as there was time; of other paths they are found as ever."""
    tokens, columns = BYTES.encode('{"a'), BYTES.size + 40
    held, fresh = (constraint(BYTES, GRAMMARS["schema"]) for _ in range(2))
    asked = list[int]()
    held.look_ahead(tokens, columns, lambda: bool(asked.append(0)) or len(asked) > 2)
    monkeypatch.setattr(held, "_found", lambda _: None)
    for token in tokens[:2]:
        assert allowed(BYTES, held) == allowed(BYTES, fresh)
        held.push(token)
        fresh.push(token)
    assert held.allowed(columns) is None
    held.pop()
    held.push(tokens[0])
    assert held.allowed(columns) is None


def try_every_token(tokenizer: Tokenizer, made: Callable[[], SteppedConstraint], tokens: list[int], skip: int) -> None:
    """At each place of a reply from number `skip` on, drafts of every token leave what may come next as it was."""
    held = made()
    for at, token in enumerate(tokens):
        if at >= skip:
            fresh = made()
            for before in tokens[:at]:
                fresh.push(before)
            for draft in range(tokenizer.size + 1):
                held.prefix([draft])
                held.prefix([token, draft])
            assert allowed(tokenizer, held) == allowed(tokenizer, fresh), at
            assert (held.forced(9), held.rejected) == (fresh.forced(9), 0), at
        held.push(token)
    assert held.rejected == 0


HEADER = "<|channel|>" + "a" * (MAX_HEADER_CHARS - 3)
THOUGHT = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
FORMS = {
    "none": (PLAIN, [], [], "", f"42{END}"),
    "special tokens": (PLAIN, SPECIAL, [], "", f"[THINK]hm[/THINK]\n\n42{END}"),
    "visible tokens": (PLAIN, [], [*VISIBLE, "\n\n"], "", f"<think>hm</think>\n\n\n42{END}"),
    "opened by the prompt": (OPENED, [], VISIBLE, "", f"hm</think>\n\n42{END}"),
    "spelt": (OPENED, [], [">4", ">x", "k>x"], "hm", f"</think>\n42{END}"),
    "channels": (CHANNELLED, HARMONY, [], "", f"{THOUGHT}<|channel|>final<|message|>42<|return|>"),
    "a header that grows too long": (CHANNELLED, HARMONY, ["aa"], HEADER, "a<|message|>4"),
    "gemma's channels": (PLAIN, GEMMA, [], "", f"<|channel>thought\nhm<channel|>42{END}"),
}


@pytest.mark.parametrize("form", FORMS)
def test_nothing_that_a_rejected_token_did_lasts(form: str) -> None:
    template, special, visible, begun, text = FORMS[form]
    tokenizer = made(template, special, visible)
    before, tokens = (tokenizer.backend.encode(part, add_special_tokens=False).ids for part in (begun, text))
    try_every_token(tokenizer, lambda: constraint(tokenizer), [*before, *tokens], len(before))


def test_nothing_that_a_rejected_token_did_lasts_in_a_grammar_of_the_whole_reply() -> None:
    tokenizer = made(CHANNELLED, HARMONY)
    marks = {text: tokenizer.backend.token_to_id(text) for text in HARMONY}
    held = Grammar("lark", forced_calls([Tool("now")], CallForm("channel"), marks))
    call = f"{THOUGHT}<|channel|>commentary to=functions.now <|constrain|>json<|message|>{{}}<|return|>"
    tokens = tokenizer.backend.encode(call, add_special_tokens=False).ids
    try_every_token(tokenizer, lambda: constraint(tokenizer, held, whole=True), tokens, 0)


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (Grammar("json_schema", "{"), "The JSON schema cannot be used"),
        (Grammar("json_schema", "[1]"), "The JSON schema cannot be used: it is no object."),
        (Grammar("json_schema", "[" * 100_000), "The JSON schema cannot be used"),
        (Grammar("json_schema", '{"type": "nope"}'), "The JSON schema cannot be used: Invalid type: nope."),
        (Grammar("json_schema", '{"allOf": [{"type": "null"}, {"type": "string"}]}'), "Unsatisfiable schema"),
        (Grammar("json_schema", '{"$ref": "https://example.com/x"}'), "is not present"),
        (Grammar("json_schema", '{"type": "string", "pattern": "("}'), "unclosed group"),
        (Grammar("json_schema", f'{{"const": "{"x" * MAX_CHARACTERS}"}}'), "characters; at most 262,144 are taken."),
        (Grammar("regex", "(?=a)b"), "The regex cannot be used"),
        (Grammar("lark", "start: nope"), "The Lark grammar cannot be used"),
        (Grammar("lark", ""), "The Lark grammar cannot be used"),
    ],
)
def test_a_grammar_that_cannot_be_used_says_why(grammar: Grammar, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        constraint(BYTES, grammar)
    assert caught.value.kind == "request"
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def exploding() -> str:
    """A schema that refers to itself in thousands of ways."""
    both = '{{"anyOf": [{{"$ref": "#/$defs/d{0}"}}, {{"$ref": "#/$defs/d{0}"}}]}}'
    defs = [f'"d{n}": {{"allOf": [{both.format(n + 1)}, {both.format(n + 1)}]}}' for n in range(12)]
    return f'{{"$ref": "#/$defs/d0", "$defs": {{{", ".join(defs)}, "d12": {{"type": "integer"}}}}}}'


def many() -> str:
    """An object of so many optional properties that each may come next."""
    listed = ", ".join(f'"k{n}": {{"type": "integer"}}' for n in range(3000))
    return f'{{"type": "object", "properties": {{{listed}}}, "additionalProperties": false}}'


def generated(session: Session, grammar: Grammar, strategy: str = "plain") -> str:
    """The sentence that a reply fails with."""
    request = Generate(1, (Message("user", "Hi"),), Sampling(), Limits(60), Speculation.of(strategy), grammar=grammar)
    with pytest.raises(EngineError) as caught:
        list(session.generate(request))
    assert caught.value.kind == "request"
    free = finished(list(session.generate(Generate(1, (Message("user", "Hi"),), limits=Limits(5)))))
    assert free.reason == "length"
    return caught.value.message


def test_a_place_that_is_too_complex_is_left_again() -> None:
    """llguidance's matcher stays in an error, but a draft that leads there changes nothing."""
    held = constraint(BYTES, Grammar("json_schema", many()))
    brace, quote = BYTES.encode('{"')
    assert allowed(BYTES, held) == {brace}
    for token in (brace, quote):
        held.push(token)
        assert held.error.startswith("The grammar became too complex in this reply: ")
    held.pop()
    held.pop()
    assert (allowed(BYTES, held), held.error) == ({brace}, "")


def test_a_schema_that_explodes_is_refused_and_the_next_reply_is_written(session: Session) -> None:
    assert (
        generated(session, Grammar("json_schema", exploding())) == "The JSON schema cannot be used: schema too large."
    )
    for strategy in ("plain", "lookup", "draft"):
        complex = generated(session, Grammar("json_schema", many()), strategy)
        assert complex.startswith("The grammar became too complex in this reply: ")
        assert complex.endswith(" items.")


def test_a_grammar_without_tokens_to_go_on_ends_in_a_sentence(tmp_path: Path) -> None:
    """A model whose tokens are letters alone, and a grammar that wants a digit after one."""
    backend = Backend(models.BPE(vocab={letter: at for at, letter in enumerate(ascii_letters)}, merges=[]))
    backend.add_special_tokens(tiny.SPECIAL)
    assert "llguidance cannot read this tokenizer" in unreadable(backend)
    backend.decoder = decoders.ByteLevel()
    folder = tiny.checkpoint(tmp_path / "m", backend=backend, eos_token_id=len(ascii_letters))
    session = load(PairSpec("m", "M", tiny.on_cpu(folder)), lambda _: None)
    request = Generate(1, (Message("user", "Hi"),), Sampling(), Limits(9), grammar=Grammar("regex", "b{3}7"))
    for strategy in HEADLESS:
        if session.info.strategy(strategy).available:
            drafting = replace(request, speculation=Speculation.of(strategy))
            words = "The model has no token with which the answer could go on by the grammar."
            assert ending(session, drafting) == ("bbb", words)
            # What ends the reply before that place ends it, drafted or not.
            for limits in (Limits(9, ("bb",)), Limits(9, ("b",)), Limits(3)):
                last = finished(list(session.generate(replace(drafting, limits=limits))))
                assert (last.reason, last.text) == (("stop", "") if limits.stop else ("length", "bbb"))


def test_tokens_that_are_bytes_or_begin_with_a_space_keep_to_the_grammar(tmp_path: Path) -> None:
    """The layout of Llama 2 and Mistral."""
    backend = tiny.byte_fallback()
    folder = tiny.checkpoint(tmp_path / "m", backend=backend, eos_token_id=backend.token_to_id(END))
    session = load(PairSpec("m", "M", tiny.on_cpu(folder)), lambda _: None)
    for sampling, grammar in product((Sampling(), Sampling(seed=2, temperature=1.0)), GRAMMARS.values()):
        request = Generate(1, (Message("user", "Hi"),), sampling, Limits(60), grammar=grammar)
        plain = finished(list(session.generate(request)))
        assert fits(session, grammar, plain)
        drafting = replace(request, speculation=Speculation.of("suffix"))
        assert finished(list(session.generate(drafting))).token_ids == plain.token_ids


def unreadable(backend: Backend) -> str:
    """The sentence on a tokenizer that does not say how it decodes."""
    with pytest.raises(EngineError) as caught:
        constraint(Tokenizer(backend, Path("here"), {}, TemplateSource(PLAIN, Path("here"))))
    return caught.value.message


def test_a_model_without_an_end_takes_no_grammar(session: Session) -> None:
    ends, session.eos = session.eos, frozenset()
    try:
        assert generated(session, NUMBER).startswith("No token of this model ends a reply")
    finally:
        session.eos = ends


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A model that reasons, and then would say a word."""
    backend = tiny.tokenizer()
    backend.add_tokens(["<think>", "</think>", "Ponder", " deeply", "\n\n", "Mice", " eat"])
    words = ["<think>", "Ponder", " deeply", "</think>", "\n\n", "Mice", " eat", END]
    folder = tmp_path_factory.mktemp("thinking") / "m"
    script = [backend.token_to_id(word) for word in words]
    scripted(folder, backend, script, {"eos_token": END}, tiny.TEMPLATE + "{# <think> #}", eos_token_id=256)
    return load(PairSpec("m", "M", tiny.on_cpu(folder)), lambda _: None)


@pytest.mark.parametrize("strategy", [name for name in HEADLESS if "draft" not in name and name != "cascade"])
def test_a_reasoning_model_reasons_and_then_keeps_to_the_grammar(thinking: Session, strategy: str) -> None:
    grammar = Grammar(
        "json_schema", '{"type": "array", "prefixItems": [{"const": "Mice"}], "items": false, "minItems": 1}'
    )
    if not thinking.info.strategy(strategy).available:
        pytest.skip(thinking.info.strategy(strategy).reason)
    request = Generate(1, (Message("user", "Hi"),), Sampling(), Limits(60), Speculation.of(strategy), grammar=grammar)
    events = list(thinking.generate(request))
    last = finished(events)
    assert last.reason == "stop"
    assert last.written.thoughts == "Ponder deeply"
    assert last.written.answer == '["Mice"]'
    assert "".join(p.text for e in events if isinstance(e, Step) for p in e.pieces if p.reasoning) == "Ponder deeply"


def test_a_reply_that_goes_on_in_its_reasoning_is_held_after_it(thinking: Session) -> None:
    grammar = Grammar("regex", "Mice[0-9]")
    request = Generate(1, (Message("user", "Hi"),), Sampling(), Limits(2), grammar=grammar)
    half = finished(list(thinking.generate(request)))
    assert half.written.thinking
    whole = Generate(1, (Message("user", "Hi"),), Sampling(), Limits(30), begun=half.written, grammar=grammar)
    last = finished(list(thinking.generate(whole)))
    assert (last.written.thoughts, last.reason) == ("Ponder deeply", "stop")
    assert last.written.answer.startswith("Mice")
    assert not fits(thinking, NUMBER, last)
