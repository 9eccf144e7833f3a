"""Gemma 4's assistants (Gemma team 2026): a few layers draft from the target's own KV entries."""

from specchat.engine.drafters.eagle import EagleDrafter
from specchat.engine.strategy import HeadFamily, headed

HEAD = HeadFamily(
    "kv-mtp",
    "specchat.engine.heads.kv_mtp:KvMtpHead",
    "specchat.engine.heads.kv_mtp_settings:kv_mtp",
    marks=("pre_projection.weight",),
)
STRATEGY = headed(
    HEAD,
    "Shared-KV MTP",
    "A few layers draft a chain from the target's own KV cache.",
    4,
    """Gemma 4's assistants (2026) have no cache of their own: [heads.md](heads.md). *Parameters*:
`[pair.heads] kv-mtp`. *Pays* at long contexts too, because the head reads no prompt.""",
    lambda parts: EagleDrafter("kv-mtp", "kv-mtp", parts.heads["kv-mtp"]),
)
