"""From checkpoints to a runner, each model on the device that was decided for it."""

from collections.abc import Callable

import torch

from specchat.engine.errors import EngineError
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.plan import Model, Plan
from specchat.engine.pair import PairSpec
from specchat.engine.runners.host import OwnModel, host_model, host_runner
from specchat.engine.runners.runner import Runner


def load_runner(
    pair: PairSpec, target: Checkpoint, draft: Checkpoint | None, plan: Plan, about_draft: Callable[[], None]
) -> Runner:
    """Load the models as `plan` says; `about_draft` is called between the two.

    Raises:
        EngineError: weights that cannot be used, or a draft on the GPU for a target on the CPU.
    """
    if plan.target.place == "cpu":
        if plan.draft is not None and plan.draft.place == "cuda":
            raise EngineError(
                "config",
                f"{pair.id}: the draft is to run on the GPU and the target on the CPU. Give the target device = "
                '"cuda" too, or the draft device = "cpu".',
            )
        return _on_host(target, draft, plan, about_draft)
    return _on_gpu(target, draft, plan, about_draft)


def _on_host(target: Checkpoint, draft: Checkpoint | None, plan: Plan, about_draft: Callable[[], None]) -> Runner:
    big = host_model(target, plan.context, plan.target.quant)
    small = None
    if draft is not None and plan.draft is not None:
        about_draft()
        small = host_model(draft, plan.context, plan.draft.quant, drafting=True)
    return host_runner(big, small)


def _on_gpu(target: Checkpoint, draft: Checkpoint | None, plan: Plan, about_draft: Callable[[], None]) -> Runner:
    # Only here: Triton and the kernels take a while to import, and are not there on every system.
    from specchat.engine.device.decoder import DeviceDecoder
    from specchat.engine.device.weights import load
    from specchat.engine.runners.device import device_runner

    device = torch.device("cuda")

    def model(checkpoint: Checkpoint, chosen: Model) -> DeviceDecoder:
        dtype = compute_dtype(checkpoint)
        weights = load(checkpoint, chosen.quant, device, dtype, chosen.head)
        return DeviceDecoder(chosen.config, weights, plan.context, device, dtype)

    big = model(target, plan.target)
    small: DeviceDecoder | OwnModel | None = None
    if draft is not None and plan.draft is not None:
        about_draft()
        on_gpu = plan.draft.place == "cuda"
        small = model(draft, plan.draft) if on_gpu else host_model(draft, plan.context, plan.draft.quant, True)
    return device_runner(big, small, big.config.vocab, device)


def compute_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """The precision on a GPU: float16 where the checkpoint is float16, else bfloat16, whose range is float32's."""
    return torch.float16 if checkpoint.dtype == torch.float16 else torch.bfloat16
