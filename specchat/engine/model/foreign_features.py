"""Features that no recipe holds, by the keys of config.json that ask for them: why a family is unknown."""

from collections.abc import Mapping
from typing import Any

KEYS: Mapping[str, tuple[str, ...]] = {
    "latent attention": ("kv_lora_rank",),
    "hyper-connections": ("hc_mult", "hc_count"),
    "attention to chosen tokens": ("index_topk", "indexer_budget"),
    "attention in chunks": ("attention_chunk_size",),
    "a cap on attention scores": ("attn_logit_softcapping",),
    "Mamba layers": ("mamba_d_state", "ssm_state_size", "mamba_n_heads", "mamba_num_heads", "state_size"),
}
"""Keys of files of unknown families alone: in those of known ones some have no effect."""


def foreign_features(settings: Mapping[str, Any]) -> str:
    """Return the features that the settings ask for, in words; empty where none of these is known."""
    found = [feature for feature, keys in KEYS.items() if any(settings.get(key) for key in keys)]
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
