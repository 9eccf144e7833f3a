"""The tokenizer of a GGUF file, run by llama.cpp."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import AddedToken

from specchat.engine.errors import ModelError
from specchat.engine.gguf.ollama import chat_template
from specchat.engine.llama_cpp.file import GgufFile
from specchat.engine.text.template import TemplateSource
from specchat.engine.text.tokenizer import Tokenizer

MAX_TOKEN_BYTES = 1 << 16


@dataclass(frozen=True)
class Encoding:
    """Token ids of a text, as `tokenizers.Encoding` has them."""

    ids: list[int]


class GgufTokens:
    """A `tokenizer.Backend`, which has the interface of `tokenizers.Tokenizer`."""

    normalizer = None

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        api, vocab = file.api, file.vocab
        self.pieces: list[bytes] = []
        """The bytes of each token."""
        self._ids: dict[str, int] = {}
        self._added: dict[int, AddedToken] = {}
        self.ends: set[int] = set()
        """End-of-generation tokens."""
        special = api.LLAMA_TOKEN_ATTR_CONTROL | api.LLAMA_TOKEN_ATTR_UNKNOWN
        buffer = ctypes.create_string_buffer(MAX_TOKEN_BYTES)
        for token in range(file.size):
            length = api.llama_token_to_piece(vocab, token, buffer, MAX_TOKEN_BYTES, 0, True)
            self.pieces.append(ctypes.string_at(buffer, max(0, length)))
            attributes = api.llama_vocab_get_attr(vocab, token)
            if attributes & api.LLAMA_TOKEN_ATTR_UNUSED:
                continue
            text = (api.llama_vocab_get_text(vocab, token) or b"").decode("utf-8", "replace")
            self._ids[text] = token
            if attributes & (special | api.LLAMA_TOKEN_ATTR_USER_DEFINED):
                self._added[token] = AddedToken(text, special=bool(attributes & special))
                if api.llama_vocab_is_eog(vocab, token):
                    self.ends.add(token)
        self._special = frozenset(token for token, added in self._added.items() if added.special)
        spaced = file.value("tokenizer.ggml.add_space_prefix")
        by_pieces = api.llama_vocab_type(vocab) == api.LLAMA_VOCAB_TYPE_SPM
        self._space_first = by_pieces if spaced is None else spaced == "true"

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Encoding:
        text = sequence.encode()
        room = len(text) + 8
        while True:
            tokens = (ctypes.c_int32 * room)()
            found = self._file.api.llama_tokenize(
                self._file.vocab, text, len(text), tokens, room, add_special_tokens, True
            )
            if found >= 0:
                return Encoding(list(tokens[:found]))
            room = -found

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        shown = [self.pieces[i] for i in ids if not (skip_special_tokens and i in self._special)]
        text = b"".join(shown).decode("utf-8", "replace")
        return text.removeprefix(" ") if self._space_first else text

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        if with_added_tokens:
            return dict(self._ids)
        return {text: token for text, token in self._ids.items() if token not in self._added}

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self._added

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)


def tokenizer_of(file: GgufFile) -> tuple[Tokenizer, frozenset[int]]:
    """The tokenizer of a file, and its end-of-generation tokens.

    Raises:
        ModelError: the file has no vocabulary, or a template that does not parse.
    """
    api, vocab = file.api, file.vocab
    if api.llama_vocab_type(vocab) == api.LLAMA_VOCAB_TYPE_NONE:
        raise ModelError(f"{file.path} holds no tokenizer. Convert the model again, with its vocabulary.")
    tokens = GgufTokens(file)
    texts = {token: text for text, token in tokens.get_vocab().items()}
    marks = {
        "bos_token": api.llama_vocab_bos(vocab),
        "eos_token": api.llama_vocab_eos(vocab),
        "pad_token": api.llama_vocab_pad(vocab),
    }
    special = {key: texts[token] for key, token in marks.items() if token in texts}
    bos = special.get("bos_token", "") if api.llama_vocab_get_add_bos(vocab) else ""
    source = TemplateSource(text, file.path) if (text := file.template()) else chat_template(file.path, bos)
    return Tokenizer(tokens, file.path, special, source), frozenset(tokens.ends)
