"""Prompts as text for servers that apply no chat template: it is read from a tokenizer's folder here.

The tokenizers library is left out, since this process does not load it: the texts of special tokens are in the
files beside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json
from specchat.engine.protocol.options import Arguments, Message
from specchat.engine.text.chat_template import ChatTemplate
from specchat.engine.text.template import SETTINGS, template_source

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class RawPrompts:
    """A chat template with the special tokens' texts.

    Attributes:
        begins: text of the token that the server's tokenizer puts first by itself; empty if there is none.
    """

    template: ChatTemplate
    marks: tuple[str, ...]
    begins: str

    @classmethod
    def read(cls, folder: Path, arguments: Mapping[str, Any]) -> "RawPrompts":
        """Read a checkpoint's folder; `arguments` are the pair's for the template.

        Raises:
            ModelError: a file is missing or damaged, or there is no chat template.
        """
        if not folder.is_dir():
            raise ModelError(f"{folder}, named by tokenizer in models.toml, is no folder.")
        settings = read_json(folder / SETTINGS) if found(folder / SETTINGS) else {}
        source = template_source(folder, settings)
        if source.text is None:
            raise ModelError(f"{folder}: {source.unsupported}. Name another folder as tokenizer.")
        special = {name: text for name, value in settings.items() if name.endswith("_token") and (text := _text(value))}
        library = read_json(folder / TOKENIZER) if found(folder / TOKENIZER) else {}
        added = library.get("added_tokens")
        listed = [_text(token) for token in added] if isinstance(added, list) else []
        marks = tuple(dict.fromkeys(text for text in (*special.values(), *listed) if text.strip()))
        template = ChatTemplate(source.text, str(source.file), special, marks)
        if arguments:
            template.use(arguments)
        return cls(template, marks, _begins(library, settings, special.get("bos_token", "")))

    @property
    def thinks(self) -> bool:
        """True if prompts end inside reasoning."""
        return self.template.format.opened is not None

    def prompt(self, messages: Sequence[Message], arguments: Arguments, beginning: str) -> str:
        """The chat up to the reply, with its `beginning`; marks within messages are broken up.

        Raises:
            ModelError: the template rejects the chat.
        """
        template = self.template.given(arguments)
        cleaned = [Message(m.role, self._broken(m.content), self._broken(m.reasoning)) for m in messages]
        return template.render(cleaned).removeprefix(self.begins) + beginning

    def _broken(self, text: str) -> str:
        for mark in self.marks:
            if len(mark) > 1 and not mark.isalnum() and mark in text:
                text = text.replace(mark, f"{mark[0]}\u200b{mark[1:]}")
        return text


def _text(value: object) -> str:
    """A token's text, which stands alone or with its flags."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _begins(library: Mapping[str, Any], settings: Mapping[str, Any], bos: str) -> str:
    """`bos` if a tokenizer puts it before each text."""
    after = library.get("post_processor")
    adds = bool(bos) and (settings.get("add_bos_token") is True or bos in str(after))
    return bos if adds else ""
