"""The kinds of models that can be loaded. The configuration imports this, so torch is not imported here."""

from collections.abc import Collection, Mapping

from specchat.engine.strategies import HEADS
from specchat.engine.strategy import Facts, Feature

DEFAULT_BACKEND = "native"
GGUF_BACKEND = "gguf"
HF_BACKEND = "hf"
REMOTE_BACKEND = "remote"
BACKENDS: Mapping[str, str] = {
    DEFAULT_BACKEND: "specchat.engine.loading.native:load",
    GGUF_BACKEND: "specchat.engine.loading.gguf:load",
    HF_BACKEND: "specchat.engine.loading.hf:load",
    REMOTE_BACKEND: "specchat.engine.loading.remote:load",
}
"""The "module:function" that loads pairs of each kind; see `held_pair.Loader`."""
UNSUPPORTED: Mapping[str, Mapping[Feature, str]] = {
    DEFAULT_BACKEND: {},
    GGUF_BACKEND: {
        "trees": "llama.cpp keeps the entries of a tree out of order, which rounds sums otherwise",
        "exits": "llama.cpp runs all layers in one pass",
        "skips": "llama.cpp cannot leave out layers",
        "states": "llama.cpp does not tell the states between layers",
    },
    HF_BACKEND: {
        "trees": "transformers' caches hold chains of tokens, no trees",
        "exits": "transformers runs all layers in one pass",
        "skips": "transformers runs all layers",
        "states": "heads look at the states of specchat's own decoder",
    },
    REMOTE_BACKEND: dict.fromkeys(("choice", "drafting"), "the server drafts by itself, as it was started"),
}
"""Unsupported features of the pairs of each backend, with the reason."""
NO_DRAFT: Mapping[Feature, str] = {"draft": "this pair has no draft model"}


def plain_only(reason: str) -> Mapping[Feature, str]:
    """Missing features of a target without any drafts."""
    return {"drafting": f"plain only: {reason}"}


def declared(draft: bool, heads: Collection[str], backend: str = DEFAULT_BACKEND) -> Facts:
    """The facts of a pair as it is described; heads that its target may bring along count as there."""
    unsupported = {**({} if draft else NO_DRAFT), **UNSUPPORTED[backend]}
    brought = (name for name, family in HEADS.items() if family.in_target)
    return Facts(unsupported, dict.fromkeys([*heads, *brought], ""))
