"""The engines there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specchat.serve_command import llamacpp, sglang, triton, trtllm, vllm
from specchat.serve_command.plan import ServedBy, ServePlan


@dataclass(frozen=True)
class ServingEngine:
    """An engine: its methods by the strategies that do the same, and what starts it."""

    title: str
    methods: Mapping[str, str]
    serve: Callable[[ServePlan], ServedBy]


ENGINES: Mapping[str, ServingEngine] = {
    "vllm": ServingEngine(vllm.TITLE, vllm.METHODS, vllm.serve),
    "sglang": ServingEngine(sglang.TITLE, sglang.METHODS, sglang.serve),
    "trtllm": ServingEngine(trtllm.TITLE, trtllm.METHODS, trtllm.serve),
    "triton": ServingEngine(triton.TITLE, triton.METHODS, triton.serve),
    "llama.cpp": ServingEngine(llamacpp.TITLE, llamacpp.METHODS, llamacpp.serve),
}
