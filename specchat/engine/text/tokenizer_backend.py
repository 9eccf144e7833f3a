"""The interface of the `tokenizers` library, as far as it is used."""

from collections.abc import Sequence
from typing import Any, Protocol

from tokenizers import AddedToken


class Encoded(Protocol):
    """A text in tokens."""

    @property
    def ids(self) -> list[int]: ...


class Backend(Protocol):
    """A `tokenizers.Tokenizer`, or an object with its interface."""

    @property
    def normalizer(self) -> Any:
        """Object with `normalize_str`; None without normalisation."""
        ...

    def encode(self, sequence: str, *, add_special_tokens: bool = True) -> Encoded: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]: ...

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]: ...

    def token_to_id(self, token: str) -> int | None: ...
