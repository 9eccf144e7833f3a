"""The drafting strategies by name: what each is, without importing torch."""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["auto", "plain", "model", "heads", "copied", "itself"]
"""Who drafts: others in turn, nobody, another model, heads on the target, earlier text, or the target itself."""
Head = Literal["medusa", "eagle", "eagle3", "peagle", "mtp", "dflash", "dflash2", "dspark", "xpress"]
"""The families of trained heads that a pair may name."""


@dataclass(frozen=True)
class StrategyInfo:
    """One drafting strategy as the settings panel and `--strategy` know it."""

    name: str
    title: str
    description: str
    kind: Kind
    draft_length: int
    needs_draft: bool = False
    """Whether it needs a draft model."""
    needs_head: Head | None = None
    """The family of heads that it needs."""
    begins_checks: bool = False
    """Whether drafting does a part of the check, which then costs less than those of others."""


STRATEGIES: dict[str, StrategyInfo] = {
    info.name: info
    for info in (
        StrategyInfo("plain", "Plain", "No drafting: one token a step, the yardstick for all others.", "plain", 0),
        StrategyInfo(
            "auto", "Auto", "Chooses at each step what promises the most tokens a second, plain included.", "auto", 15
        ),
        StrategyInfo(
            "draft", "Draft model", "A small model of the same family drafts, the target verifies.", "model", 5, True
        ),
        StrategyInfo(
            "draft-tree",
            "Draft tree",
            "The small model drafts several tokens for a place where it is torn; the target takes the path it likes.",
            "model",
            12,
            True,
        ),
        StrategyInfo(
            "medusa",
            "Medusa",
            "Heads on the target's last state draft several places at once, and several tokens for a place.",
            "heads",
            12,
            needs_head="medusa",
        ),
        StrategyInfo(
            "eagle",
            "EAGLE",
            "A head drafts a chain from the target's last state and the tokens after it.",
            "heads",
            5,
            needs_head="eagle",
        ),
        StrategyInfo(
            "eagle2",
            "EAGLE-2",
            "EAGLE's head drafts a tree: several tokens for a place where it is torn.",
            "heads",
            12,
            needs_head="eagle",
        ),
        StrategyInfo(
            "eagle3",
            "EAGLE-3",
            "A head drafts a chain from what the target has after some of its layers.",
            "heads",
            5,
            needs_head="eagle3",
        ),
        StrategyInfo(
            "eagle3-tree",
            "EAGLE-3 tree",
            "EAGLE-3's head drafts a tree: several tokens for a place where it is torn.",
            "heads",
            12,
            needs_head="eagle3",
        ),
        StrategyInfo(
            "peagle",
            "P-EAGLE",
            "A head as EAGLE-3's drafts a chain in one pass: each token without knowing those before it.",
            "heads",
            7,
            needs_head="peagle",
        ),
        StrategyInfo(
            "mtp",
            "MTP layer",
            "A layer for further tokens, which came with the target, drafts a chain from the target's last state.",
            "heads",
            3,
            needs_head="mtp",
        ),
        StrategyInfo(
            "dflash",
            "DFlash",
            "A head drafts a block in one pass, its tokens without knowing each other.",
            "heads",
            8,
            needs_head="dflash",
        ),
        StrategyInfo(
            "dflash2",
            "DFlash2",
            "A head drafts a block in one pass, and chooses among its tokens by what follows what.",
            "heads",
            7,
            needs_head="dflash2",
        ),
        StrategyInfo(
            "dspark",
            "DSpark",
            "A head drafts a block in one pass, each token knowing the one before it and its own chance.",
            "heads",
            7,
            needs_head="dspark",
        ),
        StrategyInfo(
            "xpress",
            "XPress",
            "A head drafts a block in one pass, and a small one beside it makes the tokens fit each other.",
            "heads",
            8,
            needs_head="xpress",
        ),
        StrategyInfo(
            "lookup",
            "Prompt lookup",
            "Drafts by copying what followed the same words earlier in the chat.",
            "copied",
            8,
        ),
        StrategyInfo(
            "suffix",
            "Suffix",
            "Copies what most often followed the same words, here and in replies before.",
            "copied",
            8,
        ),
        StrategyInfo(
            "ngram",
            "N-grams",
            "Copies what mostly followed the last few words, by small tables of this chat and of replies before.",
            "copied",
            8,
        ),
        StrategyInfo(
            "cascade",
            "Cascade",
            "Copies as n-grams do where much matches, and lets the draft model draft otherwise, or go on after a copy.",
            "auto",
            8,
            True,
        ),
        StrategyInfo(
            "lookahead",
            "Lookahead",
            "The target writes at several later places in each pass and drafts what it wrote there.",
            "itself",
            7,
        ),
        StrategyInfo(
            "early-exit",
            "Early exit",
            "The target's first layers draft, its others check: for targets trained to be read early (LayerSkip).",
            "itself",
            6,
            begins_checks=True,
        ),
        StrategyInfo(
            "swift", "SWIFT", "The target drafts for itself while skipping some of its own layers.", "itself", 4
        ),
    )
}

HEADS: tuple[Head, ...] = get_args(Head)

IN_TARGET: tuple[Head, ...] = ("mtp",)
"""The families that a target may bring along in its own checkpoint, so that a pair need not name them."""

MAX_DRAFT_LENGTH = 15
"""Most drafted tokens that a verify step takes: with the pending token it fills one 16-row tile."""

HEADED = tuple(name for name, info in STRATEGIES.items() if info.needs_head)
"""The strategies that draft by trained heads."""

SWIFT_LAYERS = 4
"""Fewest layers of a target with something between the first and the last to skip."""

JOINT = {"cascade": ("ngram", "draft"), "auto": ("draft", "lookup")}
"""Who drafts where two make one draft: the first tokens, and those after them."""

SOURCES = (*STRATEGIES, "target", "bonus")
"""Where a token came from: a strategy's accepted draft, the target's correction, or the bonus after a full accept."""


def delegates(strategy: str) -> bool:
    """Whether a strategy lets others draft, each of which is told with its steps."""
    return strategy in STRATEGIES and STRATEGIES[strategy].kind == "auto"


def begins_checks(strategy: str) -> bool:
    """Whether drafting by a strategy does a part of the check."""
    return strategy in STRATEGIES and STRATEGIES[strategy].begins_checks


def labelled(strategy: str, draft_length: int, acceptance: str = "coupled") -> str:
    """`draft x5`, `plain`, `lookup x8 ratio`; `auto` chooses its lengths and has one where it may not choose freely."""
    chooses = not draft_length or (strategy == "auto" and draft_length == MAX_DRAFT_LENGTH)
    length = "" if chooses else f" x{draft_length}"
    return strategy + length + ("" if acceptance == "coupled" else f" {acceptance}")


def plain_only(reason: str) -> dict[str, str]:
    """Why a target that nothing can be drafted for has none of the strategies that draft."""
    return {name: f"plain only: {reason}" for name in STRATEGIES if name not in ("plain", "auto")}
