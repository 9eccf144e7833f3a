"""DFlash2 (2026): blocks as DFlash's, with candidates reranked by the token before."""

from specchat.engine.drafters.dflash import block_strategy
from specchat.engine.strategy import HeadFamily

STRATEGY = block_strategy(
    "DFlash2",
    "A head drafts a block in one pass, and reranks candidates by the token before.",
    7,
    """DFlash with convolutions over the block, and a selector among the best tokens of a position (DFlash2, 2026):
[heads.md](heads.md). *Parameters*: `[pair.heads] dflash2`. *Pays* as `dflash`, and more tokens are accepted.""",
    HeadFamily(
        "dflash2",
        "specchat.engine.heads.dflash2:DFlash2Head",
        "specchat.engine.heads.block_settings:block",
        marks=("candidate_selector.hidden_projection.weight",),
    ),
)
