"""The layer for multi-token prediction that a target was trained with (DeepSeek-V3, 2024, section 2.2; MiMo, 2025).

h is the target's last hidden state before the final norm, e the embedding of the token after it, and

    g = layer(W [norm(h), norm(e)])
    scores = V norm(g)

with the target's own head V, or its rows of a draft vocabulary. For a draft token h is the previous g: the layer was
trained for one token and drafts further ones from its own hidden states. FastMTP (Cai et al. 2025), Qwen3.5 (Qwen team
2026) and GLM-4.5 (GLM-4.5 team 2025) take h and g after the norms, and the last two join them in the other order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.formats.format import Format
from specchat.engine.gguf.nextn import nextn_sources
from specchat.engine.gguf.tensors import GgufTensors
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.mtp_settings import MtpLayout, MtpSettings, mtp
from specchat.engine.heads.recipe import compiles
from specchat.engine.heads.rows import HeadRows
from specchat.engine.heads.target import FrequentScores, Target
from specchat.engine.reference.ops import norm
from specchat.engine.weights.gguf import GgufCheckpoint
from specchat.engine.weights.weights import Files, Weights


class MtpHead(FeatureHead):
    """MTP layer as a head, with tensors as in `mtp_settings.MtpLayout`."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights, from the target's own files where these are the target's.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = mtp(files, model.config, "mtp")
        recipe, layout = given.recipe, given.layout
        with Weights(_placed(files, given), model.device) as weights:
            super().__init__(target, recipe, given.parameters)
            _agree(files, weights, layout)
            tensors = self.tensors
            self._of_state, self._of_token, self._final = (tensors.read(weights, one) for one in given.norms.values())
            self._joined = tensors.read(weights, given.joined)
            self._layer = self._read_layer(weights, recipe.layers[0], compiles(given.of_one))
        self._scores = model.project if files.frequent is None else FrequentScores(files.frequent, model, tensors)
        self._normed, self._token_first = given.normed, layout.token_first
        model.record_states(recipe.aux_layers)

    def feature(self, states: Tensor) -> Tensor:
        return self.target.model.final_norm(states) if self._normed else states

    def step(self, embedded: Tensor, features: Tensor, rows: HeadRows) -> Tensor:
        tensors = self.tensors
        both = [norm(self._of_state, features, tensors), norm(self._of_token, embedded, tensors)]
        ordered = torch.cat(both[::-1] if self._token_first else both, -1)
        return self._layer(tensors.product(ordered, self._joined), rows, wanted=rows.wanted)

    @torch.inference_mode()
    def write(self, tokens: Sequence[int], start: int) -> None:
        # Of tokens whose features the target has, the layer's own results are never read.
        known = start + len(tokens) <= len(self.target.tokens) + 1
        self._extend(tokens, start, wanted=1 if known else 0)

    def next_features(self, hidden: Tensor) -> Tensor:
        return norm(self._final, hidden, self.tensors) if self._normed else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self._scores(norm(self._final, hidden, self.tensors))


@dataclass(frozen=True)
class _GgufLayer:
    """A layer in GGUF files, as `Weights` reads it."""

    folder: Path
    format: Format | None
    gguf: GgufTensors
    shards: tuple[Path, ...] = ()


def _placed(files: HeadFiles, given: MtpSettings) -> Files:
    """`files`, or the layer in them if they are GGUF files.

    Raises:
        ModelError: one is missing.
    """
    if files.nextn is None:
        return files
    found = dict(nextn_sources(files.nextn, given.shape.layers, given.recipe.layers[0], given.joined, given.norms))
    if missing := next((one.name for one in found.values() if not files.nextn.holds(one.name)), ""):
        raise ModelError(
            f"{files.nextn.path} lacks {missing}, a tensor of its layer for multi-token prediction. Take a file that "
            "was made with the whole layer."
        )
    stored = GgufCheckpoint(files.nextn, given.shape, files.settings, found)
    return _GgufLayer(files.folder, stored.format, GgufTensors(stored.files, stored.sources))


def _agree(files: HeadFiles, weights: Weights, layout: MtpLayout) -> None:
    """Check that the layer is present, and no other.

    Raises:
        ModelError: it is not.
    """
    if not weights.count(layout.prefix):
        raise ModelError(
            f"{files.folder} holds no layer for multi-token prediction ({layout.prefix}*): this copy was made without "
            "it, or is of a target that has none. Take the checkpoint as it was published."
        )
    if weights.count(layout.further):
        raise ModelError(
            f"{files.folder} holds more layers for multi-token prediction than config.json tells of ({layout.told})."
        )
