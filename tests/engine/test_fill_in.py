"""Prompts that ask a model to fill in a place, against the published forms as text."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend

from specchat.engine.errors import EngineError
from specchat.engine.pictures.blind import Blind
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.reply.prompts import Prompts
from specchat.engine.session import Session
from specchat.engine.text import fill_in
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.tiny import SPECIAL, byte_fallback, checkpoint
from tests.engine.tiny import tokenizer as bytes_of

QWEN = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
STARCODER = ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<repo_name>", "<file_sep>"]
DEEPSEEK = ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"]
GEMMA = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_separator|>"]
FILES = (("a.py", "A = 1\n"), ("b.py", "B = 2\n"))
WANTED = FillIn("def f(", ")\n", FILES)
OTHERS = "\n\n--- snippet ---\n\nA = 1\n\n\n--- snippet ---\n\nB = 2\n"


def read(tmp_path_factory: pytest.TempPathFactory, marks: list[str]) -> Tokenizer:
    return Tokenizer.read(checkpoint(tmp_path_factory.mktemp("model"), special=[*SPECIAL, *marks]))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (
            QWEN,
            "<|repo_name|>myproject\n<|file_sep|>a.py\nA = 1\n<|file_sep|>b.py\nB = 2\n<|file_sep|>filename\n"
            "<|fim_prefix|>def f(<|fim_suffix|>)\n<|fim_middle|>",
        ),
        (
            STARCODER,
            "<repo_name>myproject\n<file_sep>a.py\nA = 1\n<file_sep>b.py\nB = 2\n<file_sep>filename\n"
            "<fim_prefix>def f(<fim_suffix>)\n<fim_middle>",
        ),
        (DEEPSEEK, OTHERS + "<｜fim▁begin｜>def f(<｜fim▁hole｜>)\n<｜fim▁end｜>"),
        (
            GEMMA,
            "<|file_separator|>a.py\nA = 1\n<|file_separator|>b.py\nB = 2\n<|file_separator|>filename\n"
            "<|fim_prefix|>def f(<|fim_suffix|>)\n<|fim_middle|>",
        ),
    ],
    ids=["qwen", "starcoder", "deepseek", "gemma"],
)
def test_prompts_are_as_models_were_trained(
    marks: list[str], expected: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokenizer = read(tmp_path_factory, marks)
    backend: Backend = bytes_of([*SPECIAL, *marks])
    assert fill_in.prompt(tokenizer, WANTED, 1000) == backend.encode(expected).ids
    ahead = fill_in.prompt(tokenizer, FillIn("", "", FILES), 1000)
    assert ahead[:-2] == backend.encode(expected).ids[: len(ahead) - 2]
    alone = fill_in.prompt(tokenizer, FillIn("def f(", ")\n"), 1000)
    assert alone == backend.encode(expected[expected.index("def f(") - len(marks[0]) :]).ids
    # A mark in a text is no mark.
    quoted = fill_in.prompt(tokenizer, FillIn(f"x {marks[1]}"), 1000)
    assert quoted.count(backend.token_to_id(marks[1])) == 1
    assert {backend.token_to_id(mark) for mark in marks} == set(fill_in.ends(tokenizer))


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"], ["▁<PRE>", "▁a", "▁", "<0x62>", "▁<SUF>", "a", "▁a", "▁<MID>"]),
        (["[PREFIX]", "[SUFFIX]", "[MIDDLE]"], ["[SUFFIX]", "a", "▁a", "[PREFIX]", "▁a", "▁", "<0x62>"]),
        (
            ["<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"],
            ["<[fim-suffix]>", "a", "▁a", "<[fim-prefix]>", "▁a", "▁", "<0x62>", "<[fim-middle]>"],
        ),
    ],
    ids=["codellama", "codestral", "seed"],
)
def test_a_suffix_has_no_space_of_the_tokenizer_before_it(
    marks: list[str], expected: list[str], tmp_path: Path
) -> None:
    """As Meta's, Mistral's and ByteDance's own programs write it; two of them have the suffix first."""
    backend = byte_fallback()
    backend.add_special_tokens(marks)
    tokenizer = Tokenizer.read(checkpoint(tmp_path / "Codestral-22B-v0.1", backend=backend))
    whole = fill_in.prompt(tokenizer, FillIn("a b", "a a"), len(expected))
    assert [backend.id_to_token(token) for token in whole] == expected
    files = fill_in.prompt(tokenizer, FillIn("a b", "a a", FILES), 1000)
    assert files[-len(expected) :] == whole
    assert tokenizer.named(files[: -len(expected)]) == OTHERS
    unused = {backend.token_to_id("[MIDDLE]")}
    assert {backend.token_to_id(mark) for mark in marks} - unused == set(fill_in.ends(tokenizer))


@pytest.mark.parametrize("name", ["Mistral-Nemo-Instruct-2407", "Mamba-Codestral-7B-v0.1"])
def test_of_mistrals_models_with_marks_codestral_alone_fills_in(name: str, tmp_path: Path) -> None:
    backend = byte_fallback()
    backend.add_special_tokens(["[PREFIX]", "[SUFFIX]", "[MIDDLE]"])
    with pytest.raises(EngineError, match=f"only Codestral 22B .*{name}") as refused:
        fill_in.ends(Tokenizer.read(checkpoint(tmp_path / name, backend=backend)))
    assert refused.value.kind == "request"


def test_what_is_far_from_the_place_is_left_out_first(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = read(tmp_path_factory, QWEN)
    whole = fill_in.prompt(tokenizer, WANTED, 1000)
    one = tokenizer.named(fill_in.prompt(tokenizer, WANTED, len(whole) - 1))
    assert ("a.py" in one, "b.py" in one, "def f(" in one) == (False, True, True)
    none = fill_in.prompt(tokenizer, WANTED, 30)
    assert tokenizer.named(none) == "<|fim_prefix|>def f(<|fim_suffix|>)\n<|fim_middle|>"
    for prefix, suffix, shown in (
        ("a" * 90 + "b" * 10, "c" * 10 + "d" * 90, "<|fim_prefix|>aabbbbbbbbbb<|fim_suffix|>cccc<|fim_middle|>"),
        ("a" * 90 + "b" * 10, "cc", "<|fim_prefix|>aaaabbbbbbbbbb<|fim_suffix|>cc<|fim_middle|>"),
        ("bb", "c" * 10 + "d" * 90, "<|fim_prefix|>bb<|fim_suffix|>ccccccccccdddd<|fim_middle|>"),
    ):
        assert tokenizer.named(fill_in.prompt(tokenizer, FillIn(prefix, suffix), 19)) == shown


def test_a_place_is_filled_in_up_to_a_mark(tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = read(tmp_path_factory, QWEN)
    prompts = Prompts(tokenizer, 100, tokenizer.size, Blind("p reads no pictures"))
    request = Generate(1, (), raw=WANTED, limits=Limits(5))
    assert len(prompts.prompt(request).tokens) <= 95
    assert prompts.ends(request) == fill_in.ends(tokenizer)
    assert prompts.ends(Generate(1, (), raw="def f(")) == frozenset()


def test_marks_for_which_a_model_has_no_row_are_none(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, special=[*SPECIAL, *QWEN])
    last = bytes_of([*SPECIAL, *QWEN]).token_to_id("<|fim_suffix|>")
    with pytest.raises(EngineError, match="no tokens to fill in"):
        fill_in.ends(Tokenizer.read(folder, rows=last))


def test_a_model_without_marks_says_so(session: Session) -> None:
    for ask in (
        lambda: session.count(Count(1, (), raw=WANTED)),
        lambda: list(session.generate(Generate(1, (), raw=WANTED))),
    ):
        with pytest.raises(EngineError, match="no tokens to fill in") as refused:
            ask()
        assert refused.value.kind == "request"


def test_tokens_are_a_prompt_as_they_are(session: Session) -> None:
    text = "Once there was<|end|>"
    ids = tuple(session.tokenizer.as_it_stands(text))
    counted = session.count(Count(1, (), raw=ids, tokens=True))
    assert (counted.token_ids, counted.text) == (ids, text)
    replies = [
        list(session.generate(Generate(1, (), Sampling(), Limits(4), Speculation(), raw=raw)))[-1]
        for raw in (ids, text)
    ]
    first, second = replies
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert first.token_ids == second.token_ids
