"""Prompts of models that fill in a place of a text: prefix, suffix and other files between marks of the model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from specchat.engine.errors import EngineError
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.text.tokenizer import Tokenizer

NO_MARKS = (
    "This model has no tokens to fill in a place of a text. Take one for code that has: Qwen Coder, StarCoder2, "
    "CodeGemma, DeepSeek Coder, Codestral, CodeLlama or Granite."
)
UNTRAINED = (
    "Of Mistral's models only Codestral 22B is known to fill in a place of a text; the tokens for it are in the "
    "tokenizers of all. If this is Codestral, let its folder or file say so in its name: "
)
REPOSITORY = "myproject"
"""The repository's name, and that of the text's own file, as llama.cpp has them: requests tell neither."""
OWN_FILE = "filename"
BETWEEN = "\n\n--- snippet ---\n\n"
"""Stands before another file where a model has no mark for one, as in llama.cpp."""
PREFIX_SHARE = 0.75
"""Share of the room that a prefix may take where prefix and suffix do not fit together."""


@dataclass(frozen=True)
class FillInMarks:
    """Texts of a model's marks: before the prefix, before the suffix, and last; that and those of files may be missing.

    With `suffix_first` the prefix comes behind the suffix.
    """

    prefix: str
    suffix: str
    middle: str
    file: str = ""
    repository: str = ""
    suffix_first: bool = False

    @property
    def all(self) -> tuple[str, ...]:
        return self.prefix, self.suffix, self.middle, self.file, self.repository


CODESTRAL = FillInMarks("[PREFIX]", "[SUFFIX]", "", suffix_first=True)
FORMS = (
    FillInMarks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>", "<|repo_name|>"),  # Qwen Coder
    FillInMarks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_separator|>"),  # CodeGemma
    FillInMarks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|filename|>", "<|reponame|>"),  # Granite 4
    FillInMarks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    FillInMarks("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<repo_name>"),  # StarCoder2
    FillInMarks("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<filename>", "<reponame>"),  # StarCoder, Granite Code
    FillInMarks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    FillInMarks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder, V2, V3
    FillInMarks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    FillInMarks("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    CODESTRAL,
    FillInMarks("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", suffix_first=True),  # Seed-Coder
)
"""Forms of the marks; the first of which a tokenizer has all is its model's."""
ENDS = ("<|fim_pad|>", "<fim_pad>", "▁<EOT>")
"""Tokens that end what is filled in, or follow it."""
JOINT = "☺"
"""A character before a suffix whose tokens have none of the space that some tokenizers put before a text."""


def _tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> list[int]:
    """The tokens of those of the texts that are one."""
    found = (tokenizer.backend.token_to_id(text) for text in texts if text)
    return [token for token in found if token is not None and token < tokenizer.rows]


def _form_of(tokenizer: Tokenizer) -> tuple[FillInMarks, list[int]]:
    """The form of a model's marks, and their tokens in the order of `FillInMarks`, without those that are missing.

    Raises:
        EngineError: "request": it has none, or was not trained with them.
    """
    for form in FORMS:
        if len(marks := _tokens(tokenizer, form.all)) == sum(map(bool, form.all)):
            named = str(tokenizer.file).lower()
            if form is CODESTRAL and ("codestral" not in named or "mamba" in named):
                raise EngineError("request", f"{UNTRAINED}{tokenizer.file}.")
            return form, marks
    raise EngineError("request", NO_MARKS)


def ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens that end what is filled in, beside those that end replies: any mark, and padding."""
    return frozenset([*_form_of(tokenizer)[1], *_tokens(tokenizer, ENDS)])


def prompt(tokenizer: Tokenizer, wanted: FillIn, room: int) -> list[int]:
    """The tokens of at most `room` that ask a model to fill in: files, prefix, suffix.

    Files are left out where they do not fit, the first ones first, and then the ends of prefix and suffix that are
    farthest from the place.

    Raises:
        EngineError: "request": the model has no marks for it.
    """
    form, marks = _form_of(tokenizer)
    before, behind, *marks = marks
    middle = [marks.pop(0)] if form.middle else []
    first, prefix, suffix = (
        tokenizer.as_it_stands(""),
        tokenizer.encode(wanted.prefix),
        _joined(tokenizer, wanted.suffix),
    )
    free = room - len(first) - 2 - len(middle)
    if len(prefix) + len(suffix) > free:
        suffix = suffix[: max(free - len(prefix), free - int(PREFIX_SHARE * free), 0)]
        prefix = prefix[max(0, len(prefix) - (free - len(suffix))) :]
    files = _files(tokenizer, wanted.files, marks, free - len(prefix) - len(suffix))
    parts = [before, *prefix], [behind, *suffix]
    ordered = reversed(parts) if form.suffix_first else parts
    return [*first, *files, *chain.from_iterable(ordered), *middle]


def _joined(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text that comes behind another."""
    if tokenizer.text_after(tokenizer.encode("x")) == "x":
        return tokenizer.encode(text)
    return tokenizer.encode(JOINT + text)[len(tokenizer.encode(JOINT)) :]


def _files(tokenizer: Tokenizer, files: Sequence[tuple[str, str]], marks: Sequence[int], room: int) -> list[int]:
    """The tokens of the last `files` that fit, with the marks of a file and of the repository, if there are any."""
    encode = tokenizer.encode
    head = [*marks[1:], *encode(f"{REPOSITORY}\n")] if marks[1:] else []
    own = [marks[0], *encode(f"{OWN_FILE}\n")] if marks else []

    def shown() -> Iterator[list[int]]:
        for name, text in files:
            yield [marks[0], *encode(f"{name}\n{text}")] if marks else _joined(tokenizer, f"{BETWEEN}{text}")

    found: list[list[int]] = []
    left = room - len(head) - len(own)
    for one in reversed([*shown()]):
        if (left := left - len(one)) < 0:
            break
        found.insert(0, one)
    return [*head, *(token for one in found for token in one), *own] if found else []
