"""The tokens of a model as llguidance reads them."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.engine.model.tokenizer import Tokenizer


@runtime_checkable
class Pieces(Protocol):
    """A tokenizer's backend that has no tokenizer.json, but the bytes of each token."""

    @property
    def pieces(self) -> Sequence[bytes]: ...


@runtime_checkable
class Described(Protocol):
    """A tokenizer's backend that writes its tokenizer.json."""

    def to_str(self) -> str: ...


class _Wrapped:
    """The interface that llguidance asks for of tokens without a tokenizer.json."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes], eos: int) -> None:
        self._backend = tokenizer.backend
        self.tokens = list(tokens)
        self.eos_token_id = eos
        self.special_token_ids = [number for number, token in tokenizer.added.items() if token.special]

    def __call__(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids


def vocabulary(tokenizer: Tokenizer, eos: Collection[int]) -> Any:
    """An `LLTokenizer` with the tokenizer's tokens; those of `eos` end a reply.

    Raises:
        EngineError: "request": no token ends a reply, or llguidance cannot read these tokens.
    """
    from llguidance import LLTokenizer, TokenizerWrapper

    ends, backend = sorted(eos), tokenizer.backend
    if not ends:
        raise EngineError("request", "No token of this model ends a reply, so no grammar can hold its answers.")
    size = 1 + max(*backend.get_vocab().values(), ends[-1])
    try:
        if isinstance(backend, Pieces):
            wrapped = TokenizerWrapper(_Wrapped(tokenizer, backend.pieces, ends[0]))
            return LLTokenizer(wrapped, n_vocab=max(size, len(backend.pieces)), eos_token=ends)
        if isinstance(backend, Described):
            return LLTokenizer(backend.to_str(), n_vocab=size, eos_token=ends)
        why = "it has no description"
    except Exception as error:
        why = one_line(str(error), 200)
    raise EngineError(
        "request", f"{tokenizer.file}: llguidance cannot read this tokenizer ({why}), so no grammar can hold answers."
    )
