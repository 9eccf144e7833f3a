"""What trained heads take of memory, worked out before they are read. The app asks too: no torch in here."""

from typing import Protocol

from specchat.engine.heads.block_settings import BlockSettings
from specchat.engine.heads.mtp_settings import MtpSettings
from specchat.engine.heads.settings import Eagle3Settings, Given, layer_of
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.plan import Place
from specchat.engine.model.runs import STASH_ROWS
from specchat.engine.model.vectors import brief, fits
from specchat.engine.strategies import Head


class Counted(Given, Protocol):
    """Heads whose tensors have so many `values`."""

    @property
    def values(self) -> int: ...


def need(head: Head, files: Counted, target: ModelConfig, context: int, place: Place) -> int:
    """Bytes at most for a target there with so many tokens of cache.

    On a GPU weights and states have 16 bits, on a processor 32 or, where no more are needed, 16.

    Raises:
        ModelError: the settings are of no such head.
    """
    # An MTP layer stands among all of the target's tensors.
    values = MtpSettings.read(files, target).values if head == "mtp" else files.values
    slots = min(context, target.longest) + STASH_ROWS  # a tree's states stand apart from the text's
    states, own = _kept(head, files, target)
    if place == "cuda":
        return 2 * values + (2 * states + 4 * own) * slots
    return 4 * (values + _twice(head, files, target) + (states + own) * slots)


def compiles(layer: ModelConfig) -> bool:
    """Whether a layer of this shape may have a compiled one beside it, for chains: `cpu.head_layer`."""
    return fits(layer) and brief(layer)


def _twice(head: Head, files: Given, target: ModelConfig) -> int:
    """Weights that are held a second time, for chains."""
    if head not in ("eagle", "eagle3", "peagle", "mtp"):
        return 0
    layer = _layer(head, files, target)
    scoring = target.vocab * layer.hidden if head == "eagle3" else 0
    return layer.layers * layer.layer_parameters + scoring if compiles(layer) else 0


def _kept(head: Head, files: Given, target: ModelConfig) -> tuple[int, int]:
    """Values that are kept of each token: states of the target, and the head's own features, keys and values."""
    if head == "medusa":
        return target.hidden, 0
    if head in ("dflash", "dflash2", "dspark", "xpress"):
        block = BlockSettings.read(files, target, head)
        layer = block.layer
        return len(set(block.states)) * target.hidden, layer.layers * 2 * layer.kv_heads * layer.head_dim
    layer, states = _layer(head, files, target), 1
    if head in ("eagle3", "peagle"):
        states = len(set(Eagle3Settings.read(files, target, head).states))
    return states * target.hidden, layer.hidden + layer.layers * 2 * layer.kv_heads * layer.head_dim


def _layer(head: Head, files: Given, target: ModelConfig) -> ModelConfig:
    """The layers of a head that goes on from features."""
    if head == "mtp":
        return MtpSettings.read(files, target).layer
    return layer_of(files, files.settings) if head == "eagle" else Eagle3Settings.read(files, target, head).layer
