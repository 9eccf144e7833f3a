"""Statistics of a reply."""

from specchat.dataclass import dataclass


@dataclass(frozen=True)
class Speedup:
    """Speedup over plain decoding, with its 95 % confidence interval."""

    times: float
    low: float
    high: float


class StepTimes:
    """Times of one or several steps, in milliseconds."""

    draft_ms: float
    verify_ms: float
    other_ms: float
    waited_ms: float

    @property
    def ran_ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.other_ms

    @property
    def milliseconds(self) -> float:
        return self.ran_ms + self.waited_ms


@dataclass(frozen=True)
class Stats(StepTimes):
    """A reply's figures, named as in vLLM where it has them.

    Attributes:
        milliseconds: of all steps, with the draft model's reading of the prompt but without the target's.
        mean_acceptance_length: 1 + accepted tokens per verify step, with or without a draft. The target's own token of
            each step counts, even if the reply ended before it.
        draft_acceptance_rate: accepted share of the draft tokens.
        tested_acceptance_rate: accepted share of the verified positions, which end at the first rejection.
        acceptance_histogram: [j] steps that accepted exactly j draft tokens.
        num_spec_steps: steps with a draft.
        num_choices_again: sum of `Step.again`.
        num_shared_steps: steps whose passes other replies shared; `num_sharing_replies` sums the replies in them.
        num_repeated_tokens: tokens at the start that equal an earlier reply's, if most of them were copied.
        reasoning_tokens: those of `completion_tokens` that are reasoning or its marks; None if unknown.
        speedup_vs_plain: None while the measurement is too uncertain; `speedup_interval` has its 95 % bounds.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    ttft_ms: float = 0.0
    tokens_per_second: float = 0.0
    speedup_vs_plain: float | None = None
    speedup_interval: tuple[float, float] | None = None
    num_steps: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_tested_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    mean_acceptance_length: float = 1.0
    draft_acceptance_rate: float = 0.0
    tested_acceptance_rate: float = 0.0
    acceptance_histogram: tuple[int, ...] = ()
    per_step_accepted: tuple[int, ...] = ()
    num_choices_again: int = 0
    num_shared_steps: int = 0
    num_sharing_replies: int = 0
    num_repeated_tokens: int = 0
    reasoning_tokens: int | None = None
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    waited_ms: float = 0.0

    @property
    def replies_a_pass(self) -> float:
        """Replies whose tokens a pass read, on the average."""
        return 1 + (self.num_sharing_replies - self.num_shared_steps) / max(self.num_steps, 1)

    @property
    def length(self) -> int:
        """Tokens of prompt and reply."""
        return self.prompt_tokens + self.completion_tokens
