"""The kinds of models that can be loaded. The configuration asks too, so torch stays out of here."""

from collections.abc import Mapping

from specchat.engine.strategies import HEADED

DEFAULT_BACKEND = "native"
GGUF_BACKEND = "gguf"
HF_BACKEND = "hf"
BACKENDS: Mapping[str, str] = {
    DEFAULT_BACKEND: "specchat.engine.loading.native:load",
    GGUF_BACKEND: "specchat.engine.loading.gguf:load",
    HF_BACKEND: "specchat.engine.loading.hf:load",
}
"""By name the "module:function" that loads a pair of this kind; see `worker.Loader`."""
UNFIT: Mapping[str, Mapping[str, str]] = {
    DEFAULT_BACKEND: {},
    GGUF_BACKEND: {
        "draft-tree": "llama.cpp keeps the entries of a tree out of order, which rounds sums otherwise",
        "lookahead": "llama.cpp keeps the entries of a tree out of order, which rounds sums otherwise",
        "early-exit": "llama.cpp runs all layers in one pass",
        "swift": "llama.cpp cannot leave out layers",
        **dict.fromkeys(HEADED, "llama.cpp does not tell the states between layers"),
    },
    HF_BACKEND: {
        "draft-tree": "transformers' caches hold chains of tokens, no trees",
        "lookahead": "transformers' caches hold chains of tokens, no trees",
        "early-exit": "transformers runs all layers in one pass",
        "swift": "transformers runs all layers",
        **dict.fromkeys(HEADED, "heads look at the states of specchat's own decoder"),
    },
}
"""The strategies that pairs of a kind cannot have, and why."""
