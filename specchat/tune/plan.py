"""Time and memory that tunes and measurements beside the chat take, estimated before anything is loaded."""

import os
from dataclasses import dataclass

from specchat.engine.protocol.pair_info import PairInfo

LARGEST_WHOLE = 150_000_000
"""Weights of the largest draft that is trained whole; of larger ones adapters are."""
LEAST_ASKED = 16
"""Prompts of saved chats to train on at least: two are then held out, and a gain over one has no interval."""
REPLIES, DRAFT_STEPS = 512, 400
"""Replies of the target, and steps of training, unless others are asked for."""
_WHOLE_BYTES, _ADAPTED_BYTES = 16, 4
"""Bytes a weight: itself, its gradient and two moments in float32; or itself alone."""
IMPORTED = 300_000_000
"""Bytes of a process with all that it imports."""
PROCESS = 640_000_000
"""Bytes of a process with all that it imports, and of a smallest training."""
_TEXT_BYTES, _LEAST_TEXT_BYTES, _MOST_TEXT_BYTES = 75, 250_000_000, 2_400_000_000
"""Bytes a weight in layers of what a step computes for its texts, and the least and the most that training holds."""
_SCORE_BYTES, _MOST_SCORE_BYTES = 120 * 256, 1_200_000_000
"""Bytes for each token of the vocabulary of a reply's scores, and the most that training holds: it scores in blocks."""
_SLACK = 1.3
"""Factor on the tensors of a training of heads or of an exit: copies that are brief, and what allocators hold."""
_HELD_OUT, _MEASURED_TOKENS = 64, 12 * 96 * 4 * 3
"""Held-out replies, and tokens of the last measurement: prompts, tokens, repeats, and contenders."""
_REPLY_TOKENS, _TEXT_TOKENS = 80, 180
"""Tokens of a reply, and of a text with its prompt."""
_STEP_TOKENS = 8 * _TEXT_TOKENS
"""Tokens of a step's texts."""
_TRIALS = 1.2
"""Steps over those asked for: a tenth for each of three divergences, of which one goes on."""
_OPERATIONS, _STEP_S = 6.0, 0.03
"""Operations for a weight and token, forwards and backwards; seconds that a step of the smallest draft takes."""
_OPERATIONS_S = 3e10
"""Operations of a core in a second, as trained."""
_GPU_OPERATIONS_S = 5e12
"""Operations of a GPU in a second, float32. Estimated, not measured."""
_GPU_PROCESS, _GPU_HOST = 800_000_000, 1_500_000_000
"""Bytes that CUDA takes for a process of its own: on the GPU, and in main memory. Estimated, not measured."""
_TABLE_BYTES, _SLAB = 2, 200_000_000
"""Bytes of a weight of the target's tables on a GPU, and of a part of its head in float32, with its products."""
_STATES = 4
"""Layers of the target whose states are recorded at most, on a GPU for a whole context."""


@dataclass(frozen=True)
class TrainingSize:
    """`weights` that are trained, most `step_bytes` beside them, and multiplications of a step forwards."""

    weights: int
    step_bytes: int
    products: int


@dataclass(frozen=True)
class TunePlan:
    """Seconds of each phase, and bytes beside what the chat has loaded: of main memory, and of a GPU if it is used."""

    replies_s: float
    training_s: float
    measuring_s: float
    memory: int
    gpu: int = 0

    @property
    def seconds(self) -> float:
        return self.replies_s + self.training_s + self.measuring_s


def tune_plan(
    info: PairInfo,
    cores: int | None = None,
    replies: int = REPLIES,
    steps: int = DRAFT_STEPS,
    adapted: bool | None = None,
    on_cpu: bool = False,
) -> TunePlan:
    """Estimate the training of a loaded pair's draft from its size and its plain speed.

    It is on the target's GPU unless `on_cpu`, or else on `cores`, by default all.
    """
    operations = _STEP_TOKENS * _OPERATIONS * info.draft.parameters
    whole = info.draft.parameters <= LARGEST_WHOLE if adapted is None else not adapted
    weights = info.draft.parameters * (_WHOLE_BYTES if whole else _ADAPTED_BYTES)
    in_layers = info.draft.parameters - info.draft.tables
    texts = min(_MOST_TEXT_BYTES, max(_LEAST_TEXT_BYTES, in_layers * _TEXT_BYTES))
    texts += min(_MOST_SCORE_BYTES, info.target.vocabulary * _SCORE_BYTES)
    return _plan(info, weights + texts, weights, _TRIALS * steps, operations, replies, cores, on_cpu)


def training_plan(
    info: PairInfo, size: TrainingSize, replies: int, steps: int, cores: int | None = None, on_cpu: bool = False
) -> TunePlan:
    """Estimate a training of a given size on a loaded target's replies; `cores` and `on_cpu` as for a draft."""
    weights = _WHOLE_BYTES * size.weights
    trainer = round(_SLACK * (weights + size.step_bytes))
    return _plan(info, trainer, weights, steps, _OPERATIONS * size.products, replies, cores, on_cpu)


def _plan(
    info: PairInfo,
    trainer: int,
    kept: int,
    steps: float,
    operations: float,
    replies: int,
    cores: int | None,
    on_cpu: bool,
) -> TunePlan:
    """Plan `steps` of so many `operations` by a `trainer` of so many bytes, of which `kept` are written to a file."""
    speed = max(info.plain.tokens_per_second, 1.0)
    replies_s, measuring_s = (replies + _HELD_OUT) * _REPLY_TOKENS / speed, _MEASURED_TOKENS / speed
    if info.load.gpu and not on_cpu:
        states = 2 * _STATES * info.context * info.target.tables // max(1, info.target.vocabulary)
        # Once replies are written, of the target its tables stay alone.
        gpu = _GPU_PROCESS + max(info.load.memory + states, trainer + _TABLE_BYTES * info.target.tables + _SLAB)
        step_s = _STEP_S + operations / _GPU_OPERATIONS_S
        return TunePlan(replies_s, steps * step_s, measuring_s, PROCESS + _GPU_HOST + kept, gpu)
    rate = _OPERATIONS_S * (cores or os.cpu_count() or 1)
    if info.load.gpu:
        # The GPU writes, and the target in main memory reads it all once more.
        replies_s += (replies + _HELD_OUT) * _TEXT_TOKENS * 2 * info.target.parameters / rate
    return TunePlan(
        replies_s,
        steps * (_STEP_S + operations / rate),
        measuring_s,
        PROCESS + info.load.memory + max(trainer, info.load.memory),
    )


def recommend_memory(info: PairInfo) -> int:
    """Estimated bytes that `specchat recommend` takes beside the chat: the pair, and as much of its other settings."""
    return PROCESS + 2 * info.load.memory


def unsupported(info: PairInfo) -> str:
    """The reason why the draft of a loaded pair cannot be trained, as a sentence; empty if that is not known."""
    if info.server.name:
        return "A server runs this pair, and drafts as it was started."
    if not info.draft.parameters:
        return "This pair has no draft model to train."
    return ""
