"""How replies are made: a chat's settings, and the user's preferences that they begin with."""

import random
from dataclasses import asdict, field, replace
from typing import Any

from specchat.config.catalog import Pair
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Acceptance, Arguments, Limits, Sampling, Speculation
from specchat.engine.protocol.ranges import DRAFT_LENGTHS, MAX_TOKENS, SAMPLING, SEEDS
from specchat.engine.strategies import STRATEGIES


@dataclass(frozen=True)
class ChatSettings:
    """How the next reply is made.

    `seed` None means a new one for each reply; `draft_length` None is the strategy's own.
    """

    strategy: str = "plain"
    draft_length: int | None = None
    acceptance: Acceptance = "coupled"
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    limits: Limits = field(default_factory=Limits)
    template: Arguments = ()
    """Arguments of the chat template, before those of the pair."""

    @property
    def speculation(self) -> Speculation:
        return Speculation.of(self.strategy, self.draft_length, self.acceptance)

    @property
    def usable(self) -> bool:
        """False for numbers out of range, or a strategy that this version does not have."""
        optional = ((self.draft_length, DRAFT_LENGTHS), (self.seed, SEEDS), (self.limits.max_tokens, MAX_TOKENS))
        return (
            self.strategy in STRATEGIES
            and all(getattr(self.sampling, name) in span for name, span in SAMPLING.items())
            and all(value is None or value in span for value, span in optional)
        )

    def sampling_with(self, seed: int | None) -> Sampling:
        """The sampling for one reply; a seed is drawn where neither the settings nor `seed` names one."""
        chosen = seed if seed is not None else self.seed
        return replace(self.sampling, seed=new_seed() if chosen is None else chosen)


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """Choices of the command line, the environment and config.toml; None leaves one to the pair."""

    strategy: str | None = None
    draft_length: int | None = None
    acceptance: Acceptance | None = None
    sampling: Sampling | None = None
    seed: int | None = None
    """None draws a new one for each reply."""
    limits: Limits = field(default_factory=Limits)
    system: str = ""

    def settings(self, pair: Pair) -> ChatSettings:
        """The settings of a new chat with `pair`."""
        strategy = self.strategy or pair.strategy
        return ChatSettings(
            strategy,
            self.draft_length or pair.lengths.get(strategy),
            self.acceptance or pair.acceptance,
            self.sampling or pair.sampling,
            self.seed,
            self.limits,
        )


def as_data(settings: ChatSettings) -> dict[str, Any]:
    """The settings as JSON data."""
    return asdict(settings)


def from_data(data: object) -> ChatSettings | None:
    """The settings that `as_data` gave; None for other data, out of range or of a strategy that is gone."""
    from pydantic import TypeAdapter, ValidationError

    try:
        settings = TypeAdapter(ChatSettings).validate_python(data)
    except ValidationError:
        return None
    return settings if settings.usable else None


def new_seed() -> int:
    """A random seed short enough to be typed again."""
    return random.randrange(1, 1_000_000)
