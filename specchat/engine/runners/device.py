"""A pair on a GPU: Triton kernels, captured graphs, one copy to the host a step."""

from functools import partial

import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Role
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor, DraftsOnHost
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.prepare import prepare
from specchat.engine.drafters.registry import DraftModel, drafters_for
from specchat.engine.model.decoder import Decoder
from specchat.engine.runners.runner import Runner


def device_runner(
    target: DeviceDecoder,
    draft: DeviceDecoder | Decoder | None,
    vocab: int,
    device: torch.device,
    captured: bool = True,
) -> Runner:
    """The Triton decoder; `vocab` tokens may be chosen, a draft may also run on the host; `captured` as in `Graphs`."""
    models: dict[Role, DeviceDecoder] = {"target": target}
    if isinstance(draft, DeviceDecoder):
        models["draft"] = draft
    executor = DeviceExecutor(models, vocab, device, captured)
    cached = {
        role: CachedModel(DeviceModel(model, role, vocab, executor.graphs, device)) for role, model in models.items()
    }
    drafting: DraftModel | None = None
    if isinstance(draft, Decoder):
        on_host = CachedModel(draft)
        drafting = DraftModel(on_host, DraftsOnHost({"draft": on_host}, vocab, executor), ahead=False)
    elif "draft" in cached:
        drafting = DraftModel(cached["draft"], executor, ahead=True)
    drafters, statuses = drafters_for(cached["target"], target.config.layers, executor, drafting)

    def memory() -> int:
        return executor.memory() + target.memory() + (draft.memory() if draft is not None else 0)

    return Runner(
        target=cached["target"],
        draft=drafting.cached if drafting is not None else None,
        executor=executor,
        drafters=drafters,
        statuses=statuses,
        vocab=target.config.vocab,
        eos=target.config.eos,
        place="cuda",
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "interpreted kernels",
        exactness="row-invariant kernels" + (", captured graphs" if executor.graphs.captured else ""),
        memory=memory,
        prepare=partial(prepare, executor, cached["target"], drafters),
    )
