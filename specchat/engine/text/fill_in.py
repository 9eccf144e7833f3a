"""Prompts of models that fill in a place of a text: prefix, suffix and other files between marks of the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specchat.engine.errors import EngineError
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.text.tokenizer import Tokenizer

NO_MARKS = (
    "This model has no tokens to fill in a place of a text. Take one for code that has: Qwen Coder, StarCoder2, "
    "CodeGemma, DeepSeek Coder or Granite."
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
    """Texts of a model's marks: before the prefix, before the suffix, and last; those of files may be missing."""

    prefix: str
    suffix: str
    middle: str
    file: str = ""
    repository: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        return self.prefix, self.suffix, self.middle, self.file, self.repository


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
)
"""Forms of the marks; the first of which a tokenizer has all is its model's."""
PADDING = ("<|fim_pad|>", "<fim_pad>")


def marks_of(tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens of a model's marks, by text, in the order of `FillInMarks`.

    Raises:
        EngineError: "request": it has none.
    """
    known = {token.content: number for number, token in tokenizer.added.items()}
    for form in FORMS:
        if all(text in known for text in form.all if text):
            return {text: known[text] for text in form.all if text}
    raise EngineError("request", NO_MARKS)


def ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens that end what is filled in, beside those that end replies: any mark, and padding."""
    known = {token.content: number for number, token in tokenizer.added.items()}
    padding = {known[text] for text in PADDING if text in known}
    return frozenset(marks_of(tokenizer).values()) | padding


def prompt(tokenizer: Tokenizer, wanted: FillIn, room: int) -> list[int]:
    """The tokens of at most `room` that ask a model to fill in: files, prefix, suffix.

    Files are left out where they do not fit, the first ones first, and then the ends of prefix and suffix that are
    farthest from the place.

    Raises:
        EngineError: "request": the model has no marks for it.
    """
    marks = [*marks_of(tokenizer).values()]
    before, behind, middle = marks[:3]
    first, prefix, suffix = (
        tokenizer.as_it_stands(""),
        tokenizer.encode(wanted.prefix),
        tokenizer.encode(wanted.suffix),
    )
    free = room - len(first) - 3
    if len(prefix) + len(suffix) > free:
        suffix = suffix[: max(free - len(prefix), free - int(PREFIX_SHARE * free), 0)]
        prefix = prefix[max(0, len(prefix) - (free - len(suffix))) :]
    files = _files(tokenizer, wanted.files, marks[3:], free - len(prefix) - len(suffix))
    return [*first, *files, before, *prefix, behind, *suffix, middle]


def _files(tokenizer: Tokenizer, files: Sequence[tuple[str, str]], marks: Sequence[int], room: int) -> list[int]:
    """The tokens of the last `files` that fit, with the marks of a file and of the repository, if there are any."""
    encode = tokenizer.encode
    head = [*marks[1:], *encode(f"{REPOSITORY}\n")] if marks[1:] else []
    own = [marks[0], *encode(f"{OWN_FILE}\n")] if marks else []

    def shown() -> Iterator[list[int]]:
        for name, text in files:
            yield [marks[0], *encode(f"{name}\n{text}")] if marks else encode(f"{BETWEEN}{text}")

    found: list[list[int]] = []
    left = room - len(head) - len(own)
    for one in reversed([*shown()]):
        if (left := left - len(one)) < 0:
            break
        found.insert(0, one)
    return [*head, *(token for one in found for token in one), *own] if found else []
