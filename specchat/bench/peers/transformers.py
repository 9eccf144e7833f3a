"""transformers as contenders: `generate`, assisted generation and prompt lookup, on the same checkpoints."""

from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Material, Run
from specchat.engine.hardware.gpu import CHOSEN
from specchat.engine.protocol.pair import Quant

TRIAL_TOKENS = 16
"""Tokens of a reply that tries a number of threads."""
TRIALS = 5
"""Replies per number of threads, in turn: a single one may fall between two bursts of another program."""


def contenders(material: Material, clock: Clock = CLOCK) -> Iterator["Transformers"]:
    """Plain generation, assisted generation if there is a draft, and prompt lookup, on one copy of the target."""
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    target = _load(material, str(material.target), material.target_quant)
    yield Transformers("transformers", "plain", target, material, {}, clock)
    if material.draft is not None:
        draft = _load(material, str(material.draft), material.draft_quant)
        yield Transformers("transformers, assisted", "draft", target, material, {"assistant_model": draft}, clock)
    lookup = {"prompt_lookup_num_tokens": material.lookup_length}
    yield Transformers("transformers, lookup", "lookup", target, material, lookup, clock)


class Transformers:
    """One set of options of `generate`; draft lengths of assisted generation follow transformers' own schedule."""

    def __init__(
        self, name: str, rival: str, model: Any, material: Material, options: dict[str, Any], clock: Clock
    ) -> None:
        self.name = name
        self.rival = rival
        self.note = ""
        self._model = model
        self._options = options
        self._clock = clock
        self._eos = sorted(material.eos) or None
        self._on_gpu = material.on_gpu
        self._threads = self._outside = torch.get_num_threads()
        s = material.sampling
        self._sampling: dict[str, Any] = {"do_sample": False}
        if not s.greedy:
            self._sampling = {
                "do_sample": True,
                "temperature": s.temperature,
                "top_k": s.top_k,
                "top_p": s.top_p,
                "min_p": s.min_p or None,
            }
        if s.repetition_penalty != 1.0:
            self._sampling["repetition_penalty"] = s.repetition_penalty
        if s.presence_penalty or s.frequency_penalty:
            self._add("transformers has no presence and frequency penalties: written without")

    def warm_up(self, prompt: BenchPrompt) -> None:
        """On the CPU, choose between one thread and all cores by the median of several replies."""
        if self._on_gpu:
            self.run(prompt, TRIAL_TOKENS)
            return
        cores = torch.multiprocessing.cpu_count()
        speeds: dict[int, list[float]] = {threads: [] for threads in sorted({1, cores})}
        self.run(prompt, TRIAL_TOKENS)  # the very first is slower
        for _ in range(TRIALS):
            for self._threads, seen in speeds.items():
                seen.append(self.run(prompt, TRIAL_TOKENS).speed or 0.0)
        self._threads = max(speeds, key=lambda threads: median(speeds[threads]))
        self._add(f"{self._threads} of {cores} threads, the faster in its warm-up")

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        device = self._model.device
        ids = torch.tensor([prompt.tokens], device=device)
        watch = _Watch(self._clock)
        torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                watch.begin()
                made = self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=most,
                    eos_token_id=self._eos,
                    pad_token_id=self._eos[0] if self._eos else 0,
                    streamer=watch,
                    **self._sampling,
                    **self._options,
                )
                tokens = tuple(made[0, len(prompt.tokens) :].tolist())
                seconds = self._clock() - watch.started
        finally:
            torch.set_num_threads(self._outside)
        return Run(tokens, seconds, watch.first_seconds, watch.first_tokens)

    def _add(self, note: str) -> None:
        self.note += ("; " if self.note else "") + note

    def close(self) -> None:
        self._model = None
        self._options = {}


class _Watch(BaseStreamer):
    """Records the time of the first new tokens; `put` receives the prompt first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prompt_seen = False
        self.started = self.first_seconds = 0.0
        self.first_tokens = 0

    def begin(self) -> None:
        self.started = self._clock()

    def put(self, value: Tensor) -> None:
        if self._prompt_seen and not self.first_tokens:
            self.first_seconds = self._clock() - self.started
            self.first_tokens = value.numel()
        self._prompt_seen = True

    def end(self) -> None:
        pass


def _load(material: Material, folder: str, quant: Quant | None) -> Any:
    options: dict[str, Any] = {"dtype": torch.float32}
    if material.on_gpu:
        options = {"dtype": torch.bfloat16, "device_map": str(CHOSEN.device)}
        if quant in ("nf4", "fp4"):
            options["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
                load_in_4bit=True,
                bnb_4bit_quant_type=quant,
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=torch.bfloat16,
            )
        elif quant == "int8":
            options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **options)
    # A checkpoint's own sampling options would be mixed with ours.
    model.generation_config = type(model.generation_config)()
    return model.eval()  # type: ignore[no-untyped-call]
