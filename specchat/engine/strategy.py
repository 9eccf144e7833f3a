"""One strategy as a value: what it is, what it needs, why a pair cannot have it, and what makes its drafter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, NamedTuple

MAX_DRAFT_LENGTH = 15
"""Most drafted tokens that a verify step takes: with the pending token it fills one 16-row tile."""

Group = Literal["plain", "auto", "model", "heads", "copied", "itself"]
"""Who drafts: nobody, others in turn, another model, heads on the target, earlier text, or the target itself."""
Feature = Literal["drafting", "trees", "draft trees", "states", "exits", "skips", "draft"]
"""What a pair may lack: steps that draft, trees that the target verifies, trees by its draft model, the target's hidden
states, passes that end after some layers, passes without some sub-layers, a draft model."""


Head = str
"""The name of a family of trained heads."""


class HeadFamily(NamedTuple):
    """A family of trained heads, which a pair names in models.toml as `[pair.heads]`.

    Attributes:
        name: the key there.
        reads: "module:class" of what reads and runs the head.
        recipe: "module:function" that makes a `heads.recipe.HeadRecipe` of its files, without torch.
        in_target: "module:function" that tells from config.json whether a target brings it along; "" where none does.
        marks: tensors that tell it from families whose tensors it has besides.
    """

    name: str
    reads: str
    recipe: str
    in_target: str = ""
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What decides which strategies a pair can have.

    `lacks` tells why it lacks features, `heads` by family "" or why those that it names cannot be used. `layers` are
    the target's, None where unknown; `exit_layer` is that of the pair.
    """

    lacks: Mapping[Feature, str] = field(default_factory=dict)
    heads: Mapping[str, str] = field(default_factory=dict)
    layers: int | None = None
    exit_layer: int | None = None


@dataclass(frozen=True)
class Strategy:
    """A strategy as the engine, the settings, `--strategy` and the pages know it.

    Attributes:
        summary: who drafts how, in a sentence.
        draft_length: tokens of a draft, unless others are asked for.
        notes: what docs/strategies.md says besides: source, parameters, when it pays.
        make: makes the drafter of what a pair has (`drafters.parts.Parts`).
        needs: features, of which the first that a pair lacks tells why it cannot have the strategy.
        head: the trained heads that it drafts by.
        layers: fewest layers of the target.
        arm: whether `auto` may choose it; "alone" only where no other arm runs a model.
        tree_of: the strategy of whose model it grows a tree.
        begins_verify: whether drafting does a part of verifying, which then costs less than that of others.
        drafts: what it drafts a step, where that is no number of tokens.
        refuses: further reasons why a pair cannot have it; "" where there is none.
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
    refuses: Callable[[Facts], str] = lambda _: ""

    @property
    def needs_head(self) -> str | None:
        """The family of heads that it needs."""
        return None if self.head is None else self.head.name

    @property
    def needs_draft(self) -> bool:
        """Whether it needs a draft model."""
        return "draft" in self.needs

    def unsupported(self, facts: Facts) -> str:
        """The reason why a pair cannot have the strategy; "" where it can."""
        for feature in self.needs:
            if reason := facts.lacks.get(feature):
                return reason
        if self.head is not None and (
            reason := facts.heads.get(
                self.head.name, "this pair has no such heads; [pair.heads] in models.toml names them"
            )
        ):
            return reason
        if facts.layers is not None and facts.layers < self.layers:
            return f"the target has only {facts.layers} layers: too few to skip some"
        return self.refuses(facts)


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
    """A strategy that drafts by trained heads, and is named as their family where it has no `name`."""
    needs: tuple[Feature, ...] = ("drafting", "states")
    name = name or head.name
    return Strategy(name, "heads", title, summary, draft_length, notes, make, needs, head, 0, "yes", tree_of)


def resolved(path: str) -> Any:
    """What "module:name" names: imported only when it is asked for."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
