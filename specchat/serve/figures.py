"""A reply's figures as other servers name them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.engine.protocol.events import Finished, PromptProgress, Started, Step
from specchat.engine.protocol.stats import Stats


def usage(stats: Stats) -> dict[str, Any]:
    """OpenAI's `usage`; accepted drafts are its predicted tokens."""
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.completion_tokens,
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.reused_tokens},
        "completion_tokens_details": {
            **reasoning(stats),
            "accepted_prediction_tokens": stats.num_accepted_draft_tokens,
            "rejected_prediction_tokens": stats.num_draft_tokens - stats.num_accepted_draft_tokens,
        },
    }


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of two usages."""
    return {
        name: added(value, other[name]) if isinstance(value, dict) else value + other[name]
        for name, value in one.items()
    }


def reasoning(stats: Stats) -> dict[str, int]:
    """The tokens of reasoning; no field where nobody counted them."""
    return {} if stats.reasoning_tokens is None else {"reasoning_tokens": stats.reasoning_tokens}


def metrics(event: Finished) -> dict[str, Any]:
    """vLLM's `metrics`, with the speed-up over plain decoding where that is known, and calls that stay text."""
    stats = event.stats
    return {
        "time_to_first_token_ms": stats.ttft_ms,
        "generation_time_ms": stats.milliseconds,
        "mean_itl_ms": stats.milliseconds / max(stats.completion_tokens, 1),
        "tokens_per_second": stats.tokens_per_second,
        "speedup_vs_plain": stats.speedup_vs_plain,
        "unreadable_tool_calls": event.unreadable_calls,
        "speculative_decoding": {
            "mean_acceptance_length": stats.mean_acceptance_length,
            "draft_acceptance_rate": stats.draft_acceptance_rate,
            "acceptance_histogram": list(stats.acceptance_histogram),
            "num_spec_steps": stats.num_spec_steps,
            "num_accepted_draft_tokens": stats.num_accepted_draft_tokens,
            "num_draft_tokens": stats.num_draft_tokens,
            "per_step_accepted": list(stats.per_step_accepted),
        },
    }


@dataclass
class Timings:
    """llama.cpp's `timings` of replies so far."""

    cached: int = 0
    prompt: int = 0
    prompt_ms: float = 0.0
    predicted: int = 0
    predicted_ms: float = 0.0
    drafted: int = 0
    accepted: int = 0
    begun: float = field(default_factory=time.monotonic)

    def add(self, event: Started | Step | Finished) -> None:
        """Count an event of a reply."""
        if isinstance(event, Started):
            self.cached += event.reused
            self.prompt_ms += event.prompt_ms
            self.prompt += event.prompt_tokens - event.reused
        elif isinstance(event, Step):
            self.predicted += event.emitted
            self.predicted_ms += event.milliseconds
            self.drafted += event.drafted
            self.accepted += event.accepted

    def progress(self, event: PromptProgress) -> dict[str, Any]:
        """llama.cpp's `prompt_progress`."""
        milliseconds = 1e3 * (time.monotonic() - self.begun)
        return {"total": event.tokens, "cache": event.reused, "processed": event.read, "time_ms": milliseconds}

    def data(self) -> dict[str, Any]:
        found = {
            "cache_n": self.cached,
            "prompt_n": self.prompt,
            "prompt_ms": self.prompt_ms,
            "prompt_per_token_ms": self.prompt_ms / max(self.prompt, 1),
            "prompt_per_second": 1e3 * self.prompt / self.prompt_ms if self.prompt_ms else 0.0,
            "predicted_n": self.predicted,
            "predicted_ms": self.predicted_ms,
            "predicted_per_token_ms": self.predicted_ms / max(self.predicted, 1),
            "predicted_per_second": 1e3 * self.predicted / self.predicted_ms if self.predicted_ms else 0.0,
        }
        return found | ({"draft_n": self.drafted, "draft_n_accepted": self.accepted} if self.drafted else {})
