"""What the command line hands to the app."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from textual.theme import Theme

from specchat.engine.api import Acceptance, Limits, PairSpec, Sampling


class Pair(Protocol):
    """What the app asks of a catalog's pair."""

    @property
    def spec(self) -> PairSpec: ...
    @property
    def strategy(self) -> str: ...
    @property
    def draft_length(self) -> int | None: ...
    @property
    def sampling(self) -> Sampling: ...


class Catalog(Protocol):
    """The pairs to choose from."""

    @property
    def pairs(self) -> Sequence[Pair]: ...


@dataclass(frozen=True)
class Launch:
    """How the app starts. None leaves a choice to the pair."""

    pair: str
    """Id of the pair to load first."""
    strategy: str | None = None
    draft_length: int | None = None
    acceptance: Acceptance = "coupled"
    sampling: Sampling | None = None
    seed: int | None = None
    limits: Limits = field(default_factory=Limits)
    system: str = ""
    theme: str | None = None
    themes: Sequence[Theme] = ()
    history: Path | None = None
    """File of the prompt history; None keeps none."""
    warnings: tuple[str, ...] = ()
    """Sentences to show once the window is up, such as a theme file that could not be read."""
