"""The choices of the command line and the environment."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Acceptance, ContextPolicy
from specchat.engine.protocol.pair import Activations, KvCache


@dataclass(frozen=True)
class SamplingWishes:
    """The wishes of sampling; None where there are none."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


@dataclass(frozen=True)
class Wishes(SamplingWishes):
    """The wishes of the command line and the environment; None where they have none."""

    models: Path | None = None
    pair: str | None = None
    target: Path | None = None
    draft: Path | None = None
    cache: KvCache | None = None
    activations: Activations | None = None
    strategy: str | None = None
    draft_length: int | None = None
    acceptance: Acceptance | None = None
    seed: int | None = None
    max_tokens: int | None = None
    context: ContextPolicy | None = None
    system: str | None = None
    stop: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: dict[str, Any]) -> "Wishes":
        """From the parameters of the command that runs; those of other names are left out."""
        names = {field.name for field in fields(cls)}
        wishes = cls(**{name: value for name, value in options.items() if name in names})
        source = click.get_current_context().get_parameter_source("pair")
        if wishes.target is not None and source is ParameterSource.ENVIRONMENT:
            return replace(wishes, pair=None)
        return wishes
