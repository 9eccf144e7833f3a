"""A checkpoint's tokenizer with the tokens that its other files add, as transformers assembles them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json
from specchat.engine.foreign import Foreign, Switch, checked
from specchat.engine.text.template import SETTINGS, TemplateSource, template_source

MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Names of special tokens, which templates use as variables."""


class _Added(Foreign):
    """A token with its flags."""

    content: str = ""
    single_word: Switch = False
    lstrip: Switch = False
    rstrip: Switch = False
    normalized: bool | None = None
    special: Switch = False

    @property
    def token(self) -> AddedToken:
        flags = {"single_word": self.single_word, "lstrip": self.lstrip, "rstrip": self.rstrip, "special": self.special}
        given = {} if self.normalized is None else {"normalized": self.normalized}
        return AddedToken(self.content, **flags, **given)


_text = BeforeValidator(lambda value: {"content": value} if isinstance(value, str) else value or {})
_listed = BeforeValidator(lambda value: list(value.values()) if isinstance(value, dict) else value or [])
_Token = Annotated[_Added, _text, Field(default_factory=_Added, description="a token's text, alone or with its flags")]
_Tokens = Annotated[
    list[Annotated[_Added, _text]], _listed, Field(default_factory=list, description="a list of tokens")
]


class _Names(Foreign):
    """Special tokens, in special_tokens_map.json or tokenizer_config.json."""

    bos_token: _Token
    eos_token: _Token
    unk_token: _Token
    sep_token: _Token
    pad_token: _Token
    cls_token: _Token
    mask_token: _Token
    additional_special_tokens: _Tokens
    extra_special_tokens: _Tokens

    @property
    def named(self) -> dict[str, str]:
        return {name: text for name in NAMED if (text := getattr(self, name).content)}

    @property
    def extra(self) -> list[str]:
        return [one.content for one in (*self.additional_special_tokens, *self.extra_special_tokens) if one.content]


class _Settings(_Names):
    """tokenizer_config.json without its chat template."""

    added_tokens_decoder: dict[str, _Added] | None = Field(None, description="an object of tokens by their numbers")


class _Older(Foreign):
    """added_tokens.json: added tokens with their ids."""

    tokens: dict[str, int] = Field(description="a number for each token")


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer by a checkpoint's files; `special`: the texts of `NAMED` tokens."""

    backend: Library
    file: Path
    special: Mapping[str, str]
    template: TemplateSource


def read_files(folder: Path) -> TokenizerFiles:
    """Read tokenizer.json, tokenizer_config.json, special_tokens_map.json, added_tokens.json and the chat template.

    Raises:
        ModelError: one of them is missing or damaged.
    """
    file = folder / "tokenizer.json"
    if not found(file):
        raise ModelError(f"{file} is missing: specchat needs the checkpoint's tokenizer.json.")
    with working(file, "cannot be read as a tokenizer"):
        backend = Library.from_file(str(file))
        # Settings of training batches in some files, which would cut prompts.
        backend.no_truncation()
        backend.no_padding()
    config = _optional(folder / SETTINGS)
    settings = checked(_Settings, config, str(folder / SETTINGS))
    names: _Names = settings
    if settings.added_tokens_decoder is None and found(folder / MAP):
        names = checked(_Names, {**config, **_optional(folder / MAP)}, str(folder / MAP))
    special, extra = names.named, names.extra
    with working(folder / SETTINGS, "names tokens that cannot be added"):
        declared = _declared(folder, settings, {*special.values(), *extra})
        _add(backend, [token for token in declared if token.content], [*special.values(), *extra])
    return TokenizerFiles(backend, file, special, template_source(folder, config))


@contextmanager
def working(file: Path, otherwise: str) -> Iterator[None]:
    """Turn errors of the tokenizers library into ModelErrors; its panics are no Exceptions.

    Raises:
        ModelError: `file`, `otherwise` and the library's message.
    """
    try:
        yield
    except (MemoryError, ModelError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{file} {otherwise} ({one_line(str(error))}). Download it again.") from None


def _optional(file: Path) -> dict[str, Any]:
    return read_json(file) if found(file) else {}


def _declared(folder: Path, settings: _Settings, special: set[str]) -> list[AddedToken]:
    """Added tokens of tokenizer_config.json, or of older added_tokens.json, by their ids."""
    if settings.added_tokens_decoder is not None:
        numbered = sorted((int(number), place) for place, number in enumerate(settings.added_tokens_decoder))
        tokens = list(settings.added_tokens_decoder.values())
        return [tokens[place].token for _, place in numbered]
    older = checked(_Older, {"tokens": _optional(folder / ADDED)}, str(folder / ADDED)).tokens
    by_number = sorted((number, text) for text, number in older.items())
    return [AddedToken(text, normalized=text not in special, special=text in special) for _, text in by_number]


def _add(backend: Library, declared: list[AddedToken], special: list[str]) -> None:
    """Add tokens that the tokenizer lacks, or has with other flags; then missing special ones."""
    known = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    added = [token for token in declared if repr(token) not in known]
    for token in added:
        token.special = token.special or token.content in special
    backend.add_tokens(added)
    texts = {token.content for token in backend.get_added_tokens_decoder().values()}
    missing = [text for text in dict.fromkeys(special) if text not in texts]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in missing])
