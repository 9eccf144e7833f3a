"""A strategy as a value: description, needs, reasons against it, and its drafter."""

from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
from typing import Any, Literal, NamedTuple

from specchat.dataclass import dataclass

MAX_DRAFT_LENGTH = 15
"""Limit of the draft tokens that a step verifies: with the pending token they fill one 16-row tile."""

Group = Literal["plain", "auto", "model", "heads", "copied", "itself"]
"""Source of drafts: none, other strategies, another model, heads on the target, earlier text, or the target itself."""
Feature = Literal["choice", "drafting", "trees", "draft trees", "states", "exits", "skips", "draft"]
"""Features of a pair: a choice of how to draft, drafting at all, trees that the target verifies, trees by the draft
model, the target's hidden states, passes that end after some layers, passes without some sub-layers, a draft model."""


Head = str
"""The name of a family of trained heads."""


class HeadFamily(NamedTuple):
    """A family of trained heads, which a pair names in models.toml as `[pair.heads]`.

    Attributes:
        name: the key there.
        reads: "module:class" that reads and runs the head.
        settings: "module:function" that reads the `heads.settings.HeadSettings` of its files, without torch.
        in_target: "module:function" that reports from config.json if a target includes it; "" where none does.
        marks: tensors that tell it from families whose tensors it has besides.
    """

    name: str
    reads: str
    settings: str
    in_target: str = ""
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class SkippedLayers:
    """Layers, counted from 0, whose attention or whose MLP drafting leaves out."""

    attention: tuple[int, ...] = ()
    mlp: tuple[int, ...] = ()


def highest(skip: SkippedLayers | None) -> int | None:
    """The highest layer of these; None for none."""
    return max((*skip.attention, *skip.mlp), default=None) if skip is not None else None


@dataclass(frozen=True)
class Facts:
    """Properties of a pair that decide on its strategies.

    `unsupported`: reasons by feature. `heads`: for each family that the pair names "", or the reason against it.
    `layers`: number in the target, None where unknown. `skipped`: the highest layer that the pair skips parts of.
    """

    unsupported: Mapping[Feature, str] = field(default_factory=dict)
    heads: Mapping[str, str] = field(default_factory=dict)
    layers: int | None = None
    exit_layer: int | None = None
    skipped: int | None = None


@dataclass(frozen=True)
class Strategy:
    """A strategy, as in the engine, the settings, `--strategy` and the pages.

    Attributes:
        summary: a sentence on its way of drafting.
        draft_length: default number of draft tokens.
        notes: further text of docs/strategies.md: source, parameters, when it pays.
        make: makes the drafter from a pair's `drafters.parts.Parts`.
        needs: features; the first that a pair lacks is the reason against the strategy.
        head: family of its trained heads.
        layers: fewest layers of the target.
        arm: "yes" where `auto` may choose it; "alone" only if no other arm runs a model.
        tree_of: the strategy of whose model it grows a tree.
        begins_verify: drafting does a part of verifying, which then costs less.
        drafts: description of a step's draft, where it is not a number of tokens.
        condition: reason why a pair fails a further condition; "" where it meets it.
    """

    name: str
    group: Group
    title: str
    summary: str
    draft_length: int
    notes: str
    make: Callable[[Any], Any]
    needs: tuple[Feature, ...] = ()
    head: HeadFamily | None = None
    layers: int = 0
    arm: Literal["no", "yes", "alone"] = "no"
    tree_of: str = ""
    begins_verify: bool = False
    drafts: str = ""
    condition: Callable[[Facts], str] = lambda _: ""

    @property
    def needs_head(self) -> str | None:
        """The family of heads that it needs, if any."""
        return None if self.head is None else self.head.name

    @property
    def needs_draft(self) -> bool:
        """True where it needs a draft model."""
        return "draft" in self.needs

    def unsupported(self, facts: Facts) -> str:
        """Reason why a pair does not support the strategy; "" where it does."""
        for feature in self.needs:
            if reason := facts.unsupported.get(feature):
                return reason
        if self.head is not None and (
            reason := facts.heads.get(
                self.head.name, "this pair has no such heads; [pair.heads] in models.toml names them"
            )
        ):
            return reason
        if facts.layers is not None and facts.layers < self.layers:
            return f"the target has only {facts.layers} layers: too few to skip some"
        return self.condition(facts)


def headed(
    head: HeadFamily,
    title: str,
    summary: str,
    draft_length: int,
    notes: str,
    make: Callable[[Any], Any],
    name: str = "",
    tree_of: str = "",
) -> Strategy:
    """Make a strategy that drafts by trained heads; its default name is their family's."""
    needs: tuple[Feature, ...] = ("drafting", "states")
    name = name or head.name
    return Strategy(name, "heads", title, summary, draft_length, notes, make, needs, head, 0, "yes", tree_of)


def resolved(path: str) -> Any:
    """Import the object "module:name"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
