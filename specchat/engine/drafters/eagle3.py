"""EAGLE-3 (Li et al. 2025): as EAGLE, with a head that reads hidden states of several layers of the target."""

from specchat.engine.drafters.eagle import EagleDrafter, EagleTreeDrafter
from specchat.engine.strategy import HeadFamily, headed

HEAD = HeadFamily("eagle3", "specchat.engine.heads.eagle3:Eagle3Head", "specchat.engine.heads.settings:eagle3")
CHAIN = headed(
    HEAD,
    "EAGLE-3",
    "A head drafts a chain from the target's hidden states after three layers.",
    5,
    """The head was trained on its own drafts (EAGLE-3, Li et al. 2025): [heads.md](heads.md). *Parameters*:
`[pair.heads] eagle3`. *Pays* for large targets with a published head, more than most small models do.""",
    lambda parts: EagleDrafter("eagle3", "eagle3", parts.heads["eagle3"]),
)
TREE = headed(
    HEAD,
    "EAGLE-3 tree",
    "EAGLE-3's head drafts a tree: several tokens where it is unsure.",
    12,
    "*Pays* where `draft-tree` would.",
    lambda parts: EagleTreeDrafter("eagle3-tree", "eagle3", parts.heads["eagle3"]),
    name="eagle3-tree",
    tree_of="eagle3",
)
