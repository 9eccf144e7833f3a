"""A checkpoint's tokenizer with the tokens that its other files add, as transformers puts them together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.model.files import found, read_json
from specchat.engine.model.template import SETTINGS, TemplateSource, template_source

MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Special tokens that have a name, by which templates write them."""
EXTRA = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer as a checkpoint's files give it; `special` holds the texts of `NAMED` tokens."""

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
        # Settings for training batches, which some files hold: they would cut prompts.
        backend.no_truncation()
        backend.no_padding()
    config = _optional(folder / SETTINGS)
    named = {**config} if "added_tokens_decoder" in config else {**config, **_optional(folder / MAP)}
    special = {key: text for key in NAMED if (text := _text(named.get(key)))}
    listed = [named[key] for key in EXTRA if isinstance(named.get(key), list)]
    extra = [text for values in listed for value in values if (text := _text(value))]
    with working(folder / SETTINGS, "names tokens that cannot be added"):
        _add(backend, _declared(folder, config, {*special.values(), *extra}), [*special.values(), *extra])
    return TokenizerFiles(backend, file, special, template_source(folder, config))


@contextmanager
def working(file: Path, otherwise: str) -> Iterator[None]:
    """Calls of the tokenizers library, which raises bare Exceptions, and where it panics something that is none.

    Raises:
        ModelError: `file` and `otherwise` in words, with the library's own.
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


def _text(value: object) -> str:
    """The text of a token that is given by itself or with its flags."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _declared(folder: Path, config: Mapping[str, Any], special: set[str]) -> list[AddedToken]:
    """Tokens that tokenizer_config.json, or older ones' added_tokens.json, say were added, by their ids."""
    declared = config.get("added_tokens_decoder")
    if isinstance(declared, dict):
        entries = [(int(number), entry) for number, entry in declared.items() if isinstance(entry, dict)]
        return [
            AddedToken(_text(entry), **{flag: bool(entry[flag]) for flag in FLAGS if flag in entry})
            for _, entry in sorted(entries, key=lambda each: each[0])
            if _text(entry)
        ]
    listed = [(number, text) for text, number in _optional(folder / ADDED).items() if isinstance(number, int)]
    return [
        AddedToken(text, normalized=text not in special, special=text in special) for _, text in sorted(listed) if text
    ]


def _add(backend: Library, declared: list[AddedToken], special: list[str]) -> None:
    """Add tokens that the tokenizer lacks, or has with other flags; then special ones that are still missing."""
    known = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    added = [token for token in declared if repr(token) not in known]
    for token in added:
        token.special = token.special or token.content in special
    backend.add_tokens(added)
    texts = {token.content for token in backend.get_added_tokens_decoder().values()}
    missing = [text for text in dict.fromkeys(special) if text not in texts]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in missing])
