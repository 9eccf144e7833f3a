"""Finds out whether a pair reads pictures, and the reason why one does not."""

from functools import partial

import torch

from specchat.clean import one_line
from specchat.engine import families
from specchat.engine.gguf.mmproj import projector
from specchat.engine.hardware.gpu import CHOSEN
from specchat.engine.loading.heads import with_room
from specchat.engine.memory.cut import ON_TWO_GPUS
from specchat.engine.memory.plan import GIB, Plan
from specchat.engine.pictures.album import Album
from specchat.engine.pictures.blind import Blind
from specchat.engine.pictures.draft_album import DraftAlbum
from specchat.engine.pictures.files import kind_of, tower_values
from specchat.engine.pictures.kinds import KINDS
from specchat.engine.pictures.rows import TakesRows
from specchat.engine.pictures.tower import CPU, LOOKING, Tower
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.recipe import Rope
from specchat.engine.runners.runner import Runner
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint


def tower_need(target: Checkpoint, on_gpu: bool) -> int:
    """Bytes of a target's tower; 0 for none."""
    if not target.also_sees or kind_of(target) not in KINDS:
        return 0
    try:
        return 4 * tower_values(target) + LOOKING * on_gpu
    except ValueError:  # told when a picture comes
        return 0


def with_tower(target: Checkpoint, plan: Plan) -> tuple[Plan, torch.device, str]:
    """The plan with a target's tower, its device, and a note where there is no room for it beside `plan`."""
    on_gpu = plan.target.place != "cpu"
    needed = 0 if plan.target.first else tower_need(target, on_gpu)
    if not needed:
        return plan, CPU, ""
    plan, reason = with_room(plan, needed, "the tower takes")
    size = f"{needed / GIB:.1f} GiB"
    if not reason:
        return plan, CHOSEN.device if on_gpu else CPU, ""
    if on_gpu:
        return (
            plan,
            CPU,
            f"the processor looks at pictures, as their tower takes {size} of GPU memory that are not free",
        )
    return plan, CPU, f"pictures take a tower of {size}, which are not free beside the models"


def with_draft_tower(
    target: Checkpoint, draft: Checkpoint | None, plan: Plan, device: torch.device
) -> tuple[Plan, torch.device]:
    """The plan with a draft's tower, and its device: that of the target's tower, where both models and towers fit."""
    if draft is None or plan.draft is None or plan.draft.place != plan.target.place or device == CPU:
        return plan, CPU
    if not _alike(target, draft):
        return plan, CPU
    try:
        plan, reason = with_room(plan, 4 * tower_values(draft), "")
    except ValueError:  # its draft sees nothing then
        return plan, CPU
    return plan, CPU if reason else device


def opened_album(
    pair: PairSpec,
    checkpoint: Checkpoint,
    runner: Runner,
    tokenizer: Tokenizer,
    devices: tuple[torch.device, torch.device] = (CPU, CPU),
    draft: Checkpoint | None = None,
    cut: bool = False,
) -> Blind:
    """The album of a pair that our own decoder runs; `devices` are those of the towers of its target and its draft.

    A target that is `cut` has its layers on two GPUs.
    """
    model, kind = runner.target.model, kind_of(checkpoint)
    if not checkpoint.also_sees:
        if (unread := checkpoint.mmproj) is not None:
            name = f"{one_line(projector(unread), 40)}, the projector of {unread.path.name}"
            return Blind(f"{pair.name} reads text alone here, as specchat does not read pictures by {name}, yet")
        return Blind(f"{pair.name} has no part that reads pictures")
    if kind not in KINDS:
        name = families.known()[checkpoint.config.family].name
        return Blind(f"{pair.name} reads text alone here, as specchat does not read pictures by {name} yet")
    if cut:
        return Blind(f"{pair.name} reads text alone here, as {ON_TWO_GPUS}")
    vocabulary, written = tokenizer.vocabulary, KINDS[kind].written
    mark, other = KINDS[kind].stand_in
    if written and mark not in vocabulary and other in vocabulary:
        vocabulary = {**vocabulary, mark: vocabulary[other]}
        written = written[0], written[1].replace(mark, other)
    if lacking := next((mark for mark in KINDS[kind].breaks if mark and mark not in vocabulary), ""):
        return Blind(f"{pair.name} lacks the token {lacking}, which pictures take")
    assert isinstance(model, TakesRows)
    if tokenizer.template is not None:
        tokenizer.template.picture = written
    tower = partial(Tower, checkpoint, vocabulary, devices[0])
    album = Album(tower, model, _rope(checkpoint), vocabulary, _mutual(checkpoint))
    small = runner.draft
    # Behind a wrapper for other tokens a draft sees nothing.
    if draft is not None and _alike(checkpoint, draft) and small is not None and isinstance(small.model, TakesRows):
        looking = partial(Tower, draft, vocabulary, devices[1])
        album.draft = small.pictures = DraftAlbum(album, looking, small.model, _rope(draft), _mutual(draft))
    return album


def _alike(target: Checkpoint, draft: Checkpoint) -> bool:
    """True if the towers of both are of one kind."""
    return draft.also_sees and KINDS.get(kind_of(draft)) == KINDS.get(kind_of(target))


def _rope(checkpoint: Checkpoint) -> Rope | None:
    """Rotations that turn by three positions; None: by one."""
    return next(iter(checkpoint.config.recipe.ropes)) if KINDS[kind_of(checkpoint)].sections else None


def _mutual(checkpoint: Checkpoint) -> int:
    """Most tokens of a picture where these attend to each other; 0: they do not."""
    return max((mixer.mutual for mixer in checkpoint.config.recipe.attentions), default=0)
