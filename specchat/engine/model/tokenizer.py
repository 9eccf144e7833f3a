"""Text to tokens and back: the checkpoint's own tokenizer.json and chat template."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from specchat.clean import one_line
from specchat.engine.api import Message, Role
from specchat.engine.errors import ModelError
from specchat.engine.model.files import found, read_json, read_text

MOST_HELD = 16
"""Tokens that are held back for a character: it takes four at most, but a token may end in the middle of the next."""
SPECIAL_TOKEN_KEYS = ("bos_token", "eos_token", "pad_token", "unk_token")


class Tokenizer:
    """A checkpoint's tokenizer. Markers, such as special tokens, come from the template alone, never from a message.

    Tokens that were added only to spell words or spaces are no markers.
    """

    def __init__(self, folder: Path) -> None:
        """Load tokenizer.json, tokenizer_config.json and the chat template.

        Raises:
            ModelError: missing or damaged tokenizer, or a template that does not parse.
        """
        self.folder = folder
        file = folder / "tokenizer.json"
        if not found(file):
            raise ModelError(f"{file} is missing: specchat needs the checkpoint's tokenizer.json.")
        with self._working("cannot be read as a tokenizer"):
            self.backend = Backend.from_file(str(file))
            # Settings for training batches, which some files hold: they would cut prompts.
            self.backend.no_truncation()
            self.backend.no_padding()
        config_file = folder / "tokenizer_config.json"
        config = read_json(config_file) if found(config_file) else {}
        self.special = _special_texts(config)
        self.eos = frozenset(i for i in [self.backend.token_to_id(self.special.get("eos_token", ""))] if i is not None)
        added = sorted(self.backend.get_added_tokens_decoder().values(), key=lambda t: len(t.content), reverse=True)
        self.special_markers = [t.content for t in added if t.special]
        self.markers = [t.content for t in added if t.special or _marks(t)]
        self.template = _template(folder, config)
        self._before = self._encoded("a")
        self._texts: dict[int, str] = {}

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
            raise ModelError(f"{self.folder}: the chat template refuses this chat: {error}.") from None
        return self._encoded(text + self._inert(prefill, "assistant"))

    def encode(self, text: str) -> list[int]:
        """The tokens of what an assistant said, with no markers in it."""
        return self._encoded(self._inert(text, "assistant"))

    def _encoded(self, text: str, add_special_tokens: bool = False) -> list[int]:
        text = text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text for the library
        with self._working("cannot split a text into tokens"):
            return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    @contextmanager
    def _working(self, otherwise: str) -> Iterator[None]:
        """Calls of the tokenizers library, which raises bare Exceptions, and where it panics something that is none."""
        try:
            yield
        except MemoryError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            file = self.folder / "tokenizer.json"
            raise ModelError(f"{file} {otherwise} ({one_line(str(error))}). Download it again.") from None

    def stream(self) -> "TextStream":
        """An incremental decoder of a reply's tokens."""
        return TextStream(self)

    def decode(self, tokens: Sequence[int]) -> str:
        with self._working("cannot put tokens together to a text"):
            return str(self.backend.decode(list(tokens)))

    def text_of(self, token: int) -> str:
        """The text that `token` adds in the middle of a text: bytes of an incomplete character show as U+FFFD, special
        tokens by their names."""
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self.text_after([token], skip_special_tokens=False)
        return text

    def text_after(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text that `tokens` add in the middle of a text: alone they would lose what some decoders take off the
        start of one."""
        with self._working("cannot put tokens together to a text"):
            before = str(self.backend.decode(self._before))
            text = str(self.backend.decode([*self._before, *tokens], skip_special_tokens=skip_special_tokens))
        return text.removeprefix(before)

    def _inert(self, text: str, role: Role = "user") -> str:
        """`text` of a message with nothing in it that would be read as a marker.

        A zero-width space goes into markers; those of one character become U+FFFD. The assistant's own words keep
        marks that are not special: they are how a model tells its reasoning.
        """
        markers = self.special_markers if role == "assistant" else self.markers
        if self.backend.normalizer is not None:
            # Markers are also looked for in the normalised text, as of full-width letters.
            with self._working("cannot split a text into tokens"):
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


def mismatch(target: Tokenizer, draft: Tokenizer) -> str | None:
    """Why the draft's tokens do not mean the same as the target's, in words; None when they do."""
    mine, other = target.backend.get_vocab(), draft.backend.get_vocab()
    differing = [text for text, index in other.items() if mine.get(text) != index]
    missing = len(mine.keys() - other.keys())
    if not differing and not missing:
        return None
    example = f", for instance {differing[0]!r}" if differing else ""
    return (
        f"its tokenizer differs from the target's: {len(differing)} of {len(other)} tokens mean something else"
        f"{example}, {missing} are missing"
    )


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
            found[key] = text
    return found


def _template(folder: Path, config: dict[str, Any]) -> jinja2.Template | None:
    file = folder / "chat_template.jinja"
    source = read_text(file) if found(file) else config.get("chat_template")
    if isinstance(source, list):  # several named templates; the default one is for chatting
        named = [t for t in source if isinstance(t, dict)]
        source = next((t.get("template") for t in named if t.get("name") == "default"), None)
    if source is None:
        return None
    if not isinstance(source, str):
        raise ModelError(f"{folder / 'tokenizer_config.json'}: chat_template is neither a text nor a list of them.")
    return compile_template(source, str(folder))


def render(template: jinja2.Template, turns: list[dict[str, str]], special: dict[str, str]) -> str:
    """A chat as text up to the assistant's next words; templates ask for tools and documents even if there are none."""
    return template.render(messages=turns, tools=None, documents=None, add_generation_prompt=True, **special)


def compile_template(source: str, where: str) -> jinja2.Template:
    """A chat template in a sandbox, with the helpers that published templates call.

    Raises:
        ModelError: the template does not parse.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag]
    )

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: object, indent: int | None = None, **_: object) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = to_json
    try:
        return environment.from_string(source)
    except RecursionError:
        raise ModelError(f"{where}: the chat template does not parse: it is nested too deeply.") from None
    except Exception as error:  # Python's own compiler refuses some of what jinja lets pass
        raise ModelError(f"{where}: the chat template does not parse: {one_line(str(error))}.") from None


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
