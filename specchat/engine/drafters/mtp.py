"""Multi-token prediction: the target's own MTP layer drafts as EAGLE's head does, repeatedly on its own output."""

from specchat.engine.drafters.eagle import EagleDrafter
from specchat.engine.strategy import HeadFamily, headed

HEAD = HeadFamily(
    "mtp",
    "specchat.engine.heads.mtp:MtpHead",
    "specchat.engine.heads.mtp_settings:mtp",
    "specchat.engine.heads.mtp_settings:has_mtp",
)
STRATEGY = headed(
    HEAD,
    "MTP layer",
    "The layer for multi-token prediction that came with the target drafts a chain.",
    3,
    """It starts from the target's last hidden state, and goes on from its own (DeepSeek-V3, 2024; MiMo-7B, 2025;
GLM-4.5, 2025; Qwen3.5, 2026): [heads.md](heads.md#the-targets-own-layer). *Parameters*: none, or `[pair.heads] mtp` for
a layer from another folder. *Pays* for a token or two a step, at the cost of one layer each. Further ones are accepted
less often, because the layer was trained for one.""",
    lambda parts: EagleDrafter("mtp", "mtp", parts.heads["mtp"]),
)
