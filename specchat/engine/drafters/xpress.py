"""XPress (2026, arXiv:2608.02438): blocks as DFlash's, refined with all tokens before each position."""

from specchat.engine.drafters.dflash import block_strategy
from specchat.engine.strategy import HeadFamily

STRATEGY = block_strategy(
    "XPress",
    "A head drafts a block in one pass, and a small network makes its tokens fit each other.",
    8,
    """DFlash with a causal refiner: each token depends on all drafted before it (XPress, 2026): [heads.md](heads.md).
*Parameters*: `[pair.heads] xpress`. *Pays* as `dflash`, and more tokens are accepted.""",
    HeadFamily(
        "xpress",
        "specchat.engine.heads.xpress:XPressHead",
        "specchat.engine.heads.block_settings:block",
        marks=("xpress_head.w1.weight", "refiner_head.token_embed.weight"),
    ),
)
