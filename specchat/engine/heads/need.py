"""Memory of trained heads, worked out before they are read. The app asks too: no torch in here."""

from dataclasses import dataclass
from typing import Protocol

from specchat.engine.heads.block_settings import BlockSettings
from specchat.engine.heads.mtp_settings import MtpSettings
from specchat.engine.heads.settings import Eagle3Settings, Given, layer_of
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.plan import Place
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.model.vectors import brief, fits
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import resolved


class Counted(Given, Protocol):
    """Heads whose tensors have so many `values`."""

    @property
    def values(self) -> int: ...


@dataclass(frozen=True)
class Held:
    """Values held of each token: `states` of the target, and the head's `own` features, keys and values.

    `twice` are weights held a second time, for chains; `values` all weights, None for those of all tensors.
    """

    states: int
    own: int
    twice: int = 0
    values: int | None = None


def need(head: str, files: Counted, target: ModelConfig, context: int, place: Place) -> int:
    """Bytes at most for a target there with so many tokens of cache.

    On a GPU weights and states have 16 bits, on a processor 32 or, where no more are needed, 16.

    Raises:
        ModelError: the settings are of no such head.
    """
    held: Held = resolved(HEADS[head].needs)(files, target, head)
    values = files.values if held.values is None else held.values
    slots = min(context, target.longest) + MAX_TREE_NODES  # a tree's states stand apart from the text's
    if place == "cuda":
        return 2 * values + (2 * held.states + 4 * held.own) * slots
    return 4 * (values + held.twice + (held.states + held.own) * slots)


def compiles(layer: ModelConfig) -> bool:
    """Whether a layer of this shape may have a compiled one beside it, for chains: `cpu.head_layer`."""
    return fits(layer) and brief(layer)


def of_medusa(_: Given, target: ModelConfig, __: str) -> Held:
    return Held(target.hidden, 0)


def of_block(files: Given, target: ModelConfig, family: str) -> Held:
    """Of a head that drafts a block from keys and values made of the target's states."""
    block = BlockSettings.read(files, target, family)
    layer = block.layer
    return Held(len(set(block.states)) * target.hidden, layer.layers * 2 * layer.kv_heads * layer.head_dim)


def of_eagle(files: Given, target: ModelConfig, _: str) -> Held:
    return _of_features(layer_of(files, files.settings), target.hidden)


def of_eagle3(files: Given, target: ModelConfig, family: str) -> Held:
    given = Eagle3Settings.read(files, target, family)
    return _of_features(given.layer, len(set(given.states)) * target.hidden, target.vocab * given.layer.hidden)


def of_peagle(files: Given, target: ModelConfig, family: str) -> Held:
    given = Eagle3Settings.read(files, target, family)
    return _of_features(given.layer, len(set(given.states)) * target.hidden)


def of_mtp(files: Given, target: ModelConfig, _: str) -> Held:
    # The layer stands among all of the target's tensors.
    given = MtpSettings.read(files, target)
    return _of_features(given.layer, target.hidden, values=given.values)


def _of_features(layer: ModelConfig, states: int, scoring: int = 0, values: int | None = None) -> Held:
    """Of a head that goes on from features by such layers; `scoring` are weights that chains score by."""
    twice = layer.layers * layer.layer_parameters + scoring if compiles(layer) else 0
    return Held(states, layer.hidden + layer.layers * 2 * layer.kv_heads * layer.head_dim, twice, values)
