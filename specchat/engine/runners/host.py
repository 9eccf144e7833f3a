"""A pair on the host's processor."""

from collections.abc import Collection

import torch

from specchat.engine.api import Sampling
from specchat.engine.decoding.sampler import Sampler
from specchat.engine.decoding.step import Decoding
from specchat.engine.drafters.registry import drafters_for
from specchat.engine.model.decoder import Decoder
from specchat.engine.model.plan import Place
from specchat.engine.targets.native import NativeTarget


class HostRunner:
    """The plain-torch decoder and the drafters that go with it."""

    def __init__(self, target: Decoder, draft: Decoder | None) -> None:
        self.cache = NativeTarget(target)
        self.drafters, self.statuses = drafters_for(target, draft, "this pair has no draft model")
        self.context = target.context
        self.vocab = target.config.vocab
        self.eos = target.config.eos
        self.target_parameters = target.parameters()
        self.draft_parameters = draft.parameters() if draft else 0
        self.place: Place = "cpu"
        threads = torch.get_num_threads()
        words = f"{threads} thread{'s' * (threads != 1)}"
        self.device = f"cpu, {words}, {torch.backends.cpu.get_cpu_capability()}"
        self.exactness = "row-invariant products: " + ", ".join(sorted(target.arrangements()))
        self._models = (target, draft) if draft else (target,)

    def reply(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> Decoding:
        return Decoding(self.cache, Sampler(sampling), prompt, eos)

    def memory(self) -> int:
        return sum(model.memory() for model in self._models)
