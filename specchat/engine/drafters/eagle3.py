"""EAGLE-3 (Li et al. 2025): as EAGLE, by a head that looks at states from several of the target's layers."""

from specchat.engine.drafters.eagle import head_chain, head_tree
from specchat.engine.strategy import HeadFamily, Strategy

HEAD = HeadFamily("eagle3", "specchat.engine.heads.eagle3:Eagle3Head", "specchat.engine.heads.need:of_eagle3")
CHAIN = Strategy(
    name="eagle3",
    group="heads",
    title="EAGLE-3",
    summary="A head drafts a chain from what the target has after some of its layers.",
    draft_length=5,
    notes="""A head of one layer that sees the target's states after three layers, and was trained on its own guesses
(EAGLE-3, Li et al. 2025): [heads.md](heads.md). *Parameters*: `[pair.heads] eagle3`. *Pays* for large targets with a
published head more than most small models do.""",
    make=lambda parts: head_chain("eagle3", HEAD, parts),
    needs=("drafting", "states"),
    head=HEAD,
    arm="yes",
)
TREE = Strategy(
    name="eagle3-tree",
    group="heads",
    title="EAGLE-3 tree",
    summary="EAGLE-3's head drafts a tree: several tokens for a place where it is torn.",
    draft_length=12,
    notes="*Pays* where `draft-tree` would.",
    make=lambda parts: head_tree("eagle3-tree", HEAD, parts),
    needs=("drafting", "states"),
    head=HEAD,
    arm="yes",
    tree_of="eagle3",
)
