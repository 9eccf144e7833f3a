"""Text to tokens and back: the checkpoint's own tokenizer.json and chat template."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.model.files import found, read_json
from specchat.engine.model.template import compile_template, render, template_source
from specchat.engine.options import Message, Role

MOST_HELD = 16
"""Tokens that are held back for a character: it takes four at most, but a token may end in the middle of the next."""
SPECIAL_TOKEN_KEYS = ("bos_token", "eos_token", "pad_token", "unk_token")


class Encoded(Protocol):
    """A text in tokens."""

    @property
    def ids(self) -> list[int]: ...


class Backend(Protocol):
    """What splits texts and joins tokens: a `tokenizers.Tokenizer`, or what behaves as one."""

    @property
    def normalizer(self) -> Any:
        """Has `normalize_str`; None where texts are split as they are."""
        ...

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Encoded: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]: ...

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]: ...

    def token_to_id(self, token: str) -> int | None: ...


class Tokenizer:
    """A model's tokenizer. Markers, such as special tokens, come from the template alone, never from a message.

    Tokens that were added only to spell words or spaces are no markers.
    """

    def __init__(self, backend: Backend, file: Path, special: Mapping[str, str], template: str | None) -> None:
        """`special` are the texts of SPECIAL_TOKEN_KEYS, as far as there are any; `file` is named in messages.

        Raises:
            ModelError: a template that does not parse.
        """
        self.backend = backend
        self.file = file
        self.special = dict(special)
        self.eos = frozenset(i for i in [backend.token_to_id(special.get("eos_token", ""))] if i is not None)
        added = sorted(backend.get_added_tokens_decoder().values(), key=lambda t: len(t.content), reverse=True)
        self.special_markers = [t.content for t in added if t.special]
        self.markers = [t.content for t in added if t.special or _marks(t)]
        self.template = None if template is None else compile_template(template, str(file))
        self._before = self._encoded("a")
        self._before_text = self.decode(self._before)
        self._texts: dict[tuple[tuple[int, ...], bool], str] = {}
        """Of single tokens, with and without the names of special ones."""

    @classmethod
    def read(cls, folder: Path) -> "Tokenizer":
        """Load tokenizer.json, tokenizer_config.json and the chat template of a checkpoint.

        Raises:
            ModelError: missing or damaged tokenizer, or a template that does not parse.
        """
        file = folder / "tokenizer.json"
        if not found(file):
            raise ModelError(f"{file} is missing: specchat needs the checkpoint's tokenizer.json.")
        with _working(file, "cannot be read as a tokenizer"):
            backend = Library.from_file(str(file))
            # Settings for training batches, which some files hold: they would cut prompts.
            backend.no_truncation()
            backend.no_padding()
        config_file = folder / "tokenizer_config.json"
        config = read_json(config_file) if found(config_file) else {}
        return cls(backend, file, _special_texts(config), template_source(folder, config))

    @property
    def vocabulary(self) -> dict[str, int]:
        """Ids by token as the tokenizer writes them, added ones included."""
        return dict(self.backend.get_vocab(with_added_tokens=True))

    @property
    def size(self) -> int:
        """How many rows a table of all token ids has, added ones included."""
        return 1 + max(self.vocabulary.values(), default=-1)

    def prompt(self, messages: Sequence[Message], prefill: str = "") -> list[int]:
        """Tokens of a chat up to where the assistant's reply starts, and of `prefill`, with which it does.

        Without a chat template the texts are joined by newlines for the model to continue. Chat and prefill are encoded
        as one text: the model then sees the tokens that it would see were the reply its own.

        Raises:
            ModelError: the template refuses these messages; its own words are passed on.
        """
        if self.template is None:
            text = "\n".join(self._inert(m.content, m.role) for m in messages) + self._inert(prefill, "assistant")
            return self._encoded(text, add_special_tokens=True)
        turns = [{"role": m.role, "content": self._inert(m.content, m.role)} for m in messages]
        try:
            text = render(self.template, turns, self.special)
        except Exception as error:  # a template is a program of somebody else's
            raise ModelError(f"{self.file}: the chat template refuses this chat: {error}.") from None
        return self._encoded(text + self._inert(prefill, "assistant"))

    def encode(self, text: str) -> list[int]:
        """The tokens of what an assistant said, with no markers in it."""
        return self._encoded(self._inert(text, "assistant"))

    def _encoded(self, text: str, add_special_tokens: bool = False) -> list[int]:
        text = text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text for the library
        with _working(self.file, "cannot split a text into tokens"):
            return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def stream(self) -> "TextStream":
        """An incremental decoder of a reply's tokens."""
        return TextStream(self)

    def decode(self, tokens: Sequence[int]) -> str:
        with _working(self.file, "cannot put tokens together to a text"):
            return str(self.backend.decode(list(tokens)))

    def text_of(self, token: int) -> str:
        """The text that `token` adds in the middle of a text: bytes of an incomplete character show as U+FFFD, special
        tokens by their names."""
        return self.text_after([token], skip_special_tokens=False)

    def text_after(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text that `tokens` add in the middle of a text: alone they would lose what some decoders take off the
        start of one."""
        key = (tuple(tokens), skip_special_tokens)
        if key in self._texts:
            return self._texts[key]
        with _working(self.file, "cannot put tokens together to a text"):
            text = str(self.backend.decode([*self._before, *tokens], skip_special_tokens=skip_special_tokens))
        text = text.removeprefix(self._before_text)
        if len(tokens) == 1:
            self._texts[key] = text
        return text

    def _inert(self, text: str, role: Role = "user") -> str:
        """`text` of a message with nothing in it that would be read as a marker.

        A zero-width space goes into markers; those of one character become U+FFFD. The assistant's own words keep
        marks that are not special: they are how a model tells its reasoning.
        """
        markers = self.special_markers if role == "assistant" else self.markers
        if self.backend.normalizer is not None:
            # Markers are also looked for in the normalised text, as of full-width letters.
            with _working(self.file, "cannot split a text into tokens"):
                normal = str(self.backend.normalizer.normalize_str(text))
            if any(marker in normal and marker not in text for marker in markers):
                text = normal
        for marker in markers:
            if marker in text:
                text = text.replace(marker, f"{marker[0]}\u200b{marker[1:]}" if len(marker) > 1 else "\ufffd")
        return text


class TextStream:
    """Decodes tokens as they come, holding back bytes that are not yet whole characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is incomplete. Bytes that cannot become one show as
        U+FFFD."""
        self._held.append(token)
        text = self._tokenizer.text_after(self._held)
        if text.endswith("\ufffd") and len(self._held) < MOST_HELD:
            return ""
        self._held.clear()
        return text

    def flush(self) -> str:
        """The rest at the end: an incomplete character shows as U+FFFD."""
        text = self._tokenizer.text_after(self._held)
        self._held.clear()
        return text


def same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether all ids mean the same to both; padding means nothing."""
    return one.backend.get_vocab() == other.backend.get_vocab()


@contextmanager
def _working(file: Path, otherwise: str) -> Iterator[None]:
    """Calls of the tokenizers library, which raises bare Exceptions, and where it panics something that is none."""
    try:
        yield
    except MemoryError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{file} {otherwise} ({one_line(str(error))}). Download it again.") from None


def _marks(token: AddedToken) -> bool:
    """Whether an added token that is not special is a mark, as <think>, and no word, indent or row of dashes."""
    text = str(token.content)
    outside = text[:1] + text[-1:]
    return not any(c.isalnum() or c.isspace() for c in outside) and any(c.isalnum() for c in text)


def _special_texts(config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for key in SPECIAL_TOKEN_KEYS:
        value = config.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[key] = text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text
    return found
