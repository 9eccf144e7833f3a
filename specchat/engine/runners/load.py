"""From checkpoints to a runner, by a plan of the devices."""

from collections.abc import Callable

import torch

from specchat.engine.cross_tokenizer.model import wrap_draft
from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap
from specchat.engine.decoding.cached import HostModel
from specchat.engine.errors import EngineError
from specchat.engine.hardware.gpu import CHOSEN, SECOND
from specchat.engine.heads.files import FoundHeads
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import Plan
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.runners.host import NO_HEADS, NativeModel, host_model, host_runner
from specchat.engine.runners.runner import DraftingLayers, Runner
from specchat.engine.weights.checkpoint import Checkpoint

COMPUTED = torch.bfloat16
"""The type of rows, caches and 16-bit weights on a GPU, of checkpoints in float16 too.

Most of these are exports of models that were trained in bfloat16, and some of their values are beyond float16's 65,504,
such as products of gates and values. Eight bits of a number are what these models are published with.
"""


def load_runner(
    pair: PairSpec,
    target: Checkpoint,
    draft: Checkpoint | None,
    plan: Plan,
    about_draft: Callable[[], None],
    vocabulary_map: VocabularyMap | None,
    heads: FoundHeads = NO_HEADS,
    shared: NativeModel | None = None,
) -> Runner:
    """Load the models by `plan`; `about_draft` is called before the draft.

    `heads` are loaded to the target's device. A `vocabulary_map` is for a draft on the host with another tokenizer.
    `shared` is the target, already loaded; it is used where the plan has it on the CPU with the same context.

    Raises:
        EngineError: weights that cannot be used, or a draft on the GPU for a target on the CPU.
    """
    drafting = plan.draft if draft is not None else None

    def on_host(vocab: int) -> HostModel | None:
        """The draft on the host, for a target of `vocab` tokens."""
        if draft is None or drafting is None:
            return None
        about_draft()
        return wrap_draft(host_model(draft, plan.context, drafting.quant), vocabulary_map, vocab)

    chosen = DraftingLayers(pair.exit_layer, pair.exit, pair.skip)
    if plan.target.place == "cpu":
        if plan.draft is not None and plan.draft.place != "cpu":
            raise EngineError(
                "config",
                f"{pair.id}: the draft is to run on the GPU and the target on the CPU. Give the target device = "
                '"cuda" too, or the draft device = "cpu".',
            )
        fits = shared is not None and shared.context == plan.context
        big = shared if shared is not None and fits else host_model(target, plan.context, plan.target.quant)
        return host_runner(big, on_host(big.vocab), chosen, heads)

    # Imported here: Triton and the kernels are slow to import, and missing on some systems.
    from specchat.engine.device.cut import load_model
    from specchat.engine.device.decoder import DeviceDecoder
    from specchat.engine.runners.device import device_runner

    def model(checkpoint: Checkpoint, chosen: Model) -> DeviceDecoder:
        gpus = {"cuda": CHOSEN.device, "second-gpu": SECOND.device}
        return load_model(checkpoint, chosen, plan.context, gpus, COMPUTED)

    on_gpu = model(target, plan.target)
    vocab = on_gpu.config.vocab
    small: DeviceDecoder | HostModel | None
    if draft is not None and drafting is not None and drafting.place != "cpu":
        about_draft()
        small = model(draft, drafting)
    else:
        small = on_host(vocab)
    return device_runner(on_gpu, small, vocab, CHOSEN.device, found=heads, chosen=chosen, room=plan.left)
