"""The plan of a service: a pair's files, its strategy, and where it runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specchat.config.errors import ConfigError
from specchat.engine.backends import declared
from specchat.engine.protocol.pair import DEFAULT_CONTEXT, ModelSource
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Strategy

if TYPE_CHECKING:
    from specchat.config.catalog import Pair


@dataclass(frozen=True)
class ServePlan:
    """A pair, as an engine is to serve it.

    Attributes:
        strategy: None for serving without drafting.
        drafter: the draft model or the heads of the strategy; None if it has neither.
        gpus: on each of the `hosts`.
    """

    pair: "Pair"
    strategy: Strategy | None
    draft_length: int
    drafter: ModelSource | None
    hosts: int = 1
    gpus: int = 1
    port: int = 8000

    @property
    def target(self) -> ModelSource:
        return self.pair.spec.target

    @property
    def context(self) -> int | None:
        spec = self.pair.spec
        return DEFAULT_CONTEXT if spec.long_context else spec.context

    @property
    def name(self) -> str:
        """The model's name on the server."""
        return self.pair.id


@dataclass(frozen=True)
class ServedBy:
    """The commands and files that start a server.

    Attributes:
        commands: argument lists with where to run them, in order.
        files: texts by their relative paths, which the commands name from the folder that has them.
        notes: sentences to know before.
        keys: of the remote pair, besides its id, name and address.
        pages: the port of the server's HTTP interface.
    """

    commands: tuple[tuple[str, tuple[str, ...]], ...]
    port: int
    keys: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def plan(
    pair: "Pair",
    engine: str,
    methods: Collection[str],
    strategy: str,
    draft_length: int | None,
    hosts: int = 1,
    gpus: int = 1,
) -> ServePlan:
    """Choose how `engine`, which has `methods` by the names of strategies, serves `pair`.

    `strategy` "auto" takes the first that both have: heads, then a draft model, then copies.

    Raises:
        ConfigError: the engine lacks the strategy, or the pair does.
    """
    if pair.spec.target.server is not None:
        raise ConfigError(f'Pair "{pair.id}" runs on a server already.')
    facts = declared(pair.spec.draft is not None, pair.spec.heads)
    fitting = [name for name in methods if not STRATEGIES[name].unsupported(facts)]
    chosen = STRATEGIES[strategy]
    if chosen.group == "plain":
        return ServePlan(pair, None, 0, None, hosts, gpus)
    if chosen.group == "auto":
        order = ("heads", "model", "copied")
        own = [name for name in fitting if chosen_source(pair, STRATEGIES[name]) is not None or not _needs(name)]
        if not own:
            raise ConfigError(f"{engine} has no strategy for this pair ({', '.join(methods)}).")
        chosen = STRATEGIES[min(own, key=lambda name: order.index(STRATEGIES[name].group))]
    elif strategy not in methods:
        raise ConfigError(f"{engine} has no {strategy}; of specchat's strategies it has {', '.join(methods)}.")
    elif reason := chosen.unsupported(facts):
        raise ConfigError(f'strategy "{strategy}" cannot be used: {reason}.')
    length = draft_length or pair.lengths.get(chosen.name) or chosen.draft_length
    return ServePlan(pair, chosen, length, chosen_source(pair, chosen), hosts, gpus)


def _needs(name: str) -> bool:
    """True for a strategy with a model or heads of its own."""
    return STRATEGIES[name].needs_draft or STRATEGIES[name].head is not None


def chosen_source(pair: "Pair", strategy: Strategy) -> ModelSource | None:
    """The files of a strategy: its heads, or the draft model."""
    if strategy.head is not None:
        return pair.spec.heads.get(strategy.head.name)
    return pair.spec.draft if strategy.needs_draft else None


def place(source: ModelSource, engine: str) -> str:
    """The folder or repository of a model, as engines take it.

    Raises:
        ConfigError: it is a GGUF file.
    """
    if source.is_gguf:
        raise ConfigError(f"{source.label} is a GGUF file, which {engine} does not serve here: take llama.cpp.")
    return source.path or source.repo or source.label


def unpassed(plan: ServePlan) -> tuple[str, ...]:
    """Settings of the pair that a command leaves out."""
    sources = [source for source in (plan.target, plan.drafter) if source is not None]
    notes = []
    if any(source.quant not in (None, "none") for source in sources):
        notes.append("The weights are served as they are stored: quant is a setting of specchat's own engine.")
    if any(source.revision for source in sources):
        notes.append("revision is not passed on: the newest files of the repository are served.")
    if plan.strategy is not None and plan.pair.strategy != plan.strategy.name:
        notes.append(f"It drafts by {plan.strategy.name}: {plan.pair.strategy} is specchat's own choice at each step.")
    return tuple(notes)
