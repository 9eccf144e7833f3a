"""A pair on a GPU: Triton kernels, captured graphs, one copy to the host a step."""

from collections.abc import Collection

import torch

from specchat.engine.api import Sampling, StrategyStatus
from specchat.engine.decoding.draft import Drafter
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.decoding import DeviceDecoding
from specchat.engine.device.drafters import DeviceDrafter, DeviceDraftModel, DeviceSwift
from specchat.engine.device.launches import Launches
from specchat.engine.device.target import DeviceTarget
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.plain import PlainDrafter
from specchat.engine.drafters.registry import SWIFT_LAYERS
from specchat.engine.model.decoder import Decoder
from specchat.engine.model.plan import Place
from specchat.engine.strategies import STRATEGIES


class DeviceRunner:
    """The Triton decoder; the draft model and SWIFT draft on the device, lookup on the host."""

    def __init__(
        self,
        target: DeviceDecoder,
        draft: DeviceDecoder | Decoder | None,
        vocab: int,
        device: torch.device,
        captured: bool = True,
    ) -> None:
        """`vocab` tokens may be chosen; a draft model may also run on the host; `captured` as in `Graphs`."""
        on_device = draft if isinstance(draft, DeviceDecoder) else None
        self._launches = launches = Launches(target, on_device, vocab, device, captured)
        self.cache = DeviceTarget(target, launches)
        self.drafters: dict[str, Drafter | DeviceDrafter] = {"plain": PlainDrafter(), "lookup": LookupDrafter()}
        refused: dict[str, str] = {}
        if on_device is not None:
            self.drafters["draft"] = DeviceDraftModel(on_device, launches)
        elif isinstance(draft, Decoder):
            self.drafters["draft"] = DraftModelDrafter(draft, vocab)
        else:
            refused["draft"] = "this pair has no draft model"
        if target.config.layers >= SWIFT_LAYERS:
            self.drafters["swift"] = DeviceSwift(target, launches)
        else:
            refused["swift"] = f"the target has only {target.config.layers} layers: too few to skip some"
        self.statuses = tuple(StrategyStatus(n, n in self.drafters, refused.get(n, "")) for n in STRATEGIES)
        self.context = target.context
        self.vocab = target.config.vocab
        self.eos = target.config.eos
        self.target_parameters = target.parameters()
        self.draft_parameters = draft.parameters() if draft else 0
        self.place: Place = "cuda"
        self.device = torch.cuda.get_device_name(device) if device.type == "cuda" else "interpreted kernels"
        self.exactness = "row-invariant kernels" + (", captured graphs" if launches.graphs.captured else "")
        self._models = (target, draft) if draft else (target,)

    def reply(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> DeviceDecoding:
        return DeviceDecoding(self.cache, self._launches, sampling, prompt, eos)

    def memory(self) -> int:
        return sum(model.memory() for model in self._models) + self._launches.memory()
