"""DSpark (DeepSeek 2026): blocks as DFlash's, with a predicted acceptance for each token.

The paper ends a block below a threshold of that probability; here the draft-length policy reads it.
"""

from specchat.engine.drafters.dflash import block_strategy
from specchat.engine.strategy import HeadFamily

STRATEGY = block_strategy(
    "DSpark",
    "A head drafts a block in one pass; each token depends on the one before.",
    7,
    """DFlash with a bias by the token before, and an estimate of each token's acceptance, which ends the draft
(DSpark, 2026): [heads.md](heads.md). *Parameters*: `[pair.heads] dspark`. *Pays* as `dflash`, and where texts change
between easy and hard.""",
    HeadFamily(
        "dspark",
        "specchat.engine.heads.dspark:DSparkHead",
        "specchat.engine.heads.block_settings:block",
        marks=("markov_head.markov_w1.weight", "confidence_head.proj.weight"),
    ),
)
