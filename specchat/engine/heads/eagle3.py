"""The head of EAGLE-3 (Li et al. 2025).

A feature f joins the target's hidden states after some of its layers. With e a token's embedding:

    f = W [h1, h2, h3]                                 of the text; for a draft token the previous g
    g = layer([norm(e), norm(f)]) onto f               onto norm(f) with norm_before_residual
    g = layer(norm(g)) onto g                          for each further layer
    scores = V norm(g)                                 over the head's draft vocabulary

norm_before_fc norms [h1, h2, h3] before W, fc_norm norms each of the three alone. The files of SafeAILab,
SpecForge and ModelOpt call the first layer "midlayer", those of speculators "layers.0".
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import compiles, renamed
from specchat.engine.heads.rows import HeadRows
from specchat.engine.heads.settings import HeadSettings, eagle3
from specchat.engine.heads.target import Embedding, Target
from specchat.engine.heads.tensors import as_stored, draft_vocabulary, fits_target, read_linear, scatter
from specchat.engine.model.passes import ChainParameters, Skip
from specchat.engine.model.rows import TILE
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.reference.ops import norm
from specchat.engine.strategy import Head
from specchat.engine.weights.matrices import read_norm
from specchat.engine.weights.weights import Weights

if TYPE_CHECKING:
    from specchat.engine.cpu.drafting.heads import HeadChain


class Eagle3Head(FeatureHead):
    """EAGLE-3 head. Keys: "fc.weight", the layer's with "hidden_norm", "norm.weight", "lm_head.weight". A smaller draft
    vocabulary adds "d2t" int64 [rows], the offset from a row to its token, and "t2d" bool [vocab]."""

    kind: ClassVar[Head] = "eagle3"

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = eagle3(files, model.config, self.kind)
        with Weights(files, model.device) as weights:
            first = "midlayer." if "midlayer.hidden_norm.weight" in weights else "layers.0."
            super().__init__(target, given.recipe, weights.count())
            shape, state, tensors = given.shape, model.config.hidden, self.tensors
            hidden, inputs = shape.hidden, len(self.aux_layers) * state
            fits_target(files, weights, state, hidden, inputs)
            _agree(files, weights, given, self.kind)

            def norm_of(name: str, size: int = hidden) -> Norm:
                return tensors.read(weights, Norm(name, size, shape.recipe.norm.eps))

            self._before = norm_of("input_norm", inputs) if given.keys.norm_before_fc else None
            each = range(len(self.aux_layers) if given.keys.fc_norm else 0)
            self._each = [norm_of(f"fc_norm.{i}", state) for i in each]
            self._fc = tensors.read(weights, Matrix(("fc",), (hidden,), inputs))
            self._token_norm, self._feature_norm = norm_of(f"{first}input_layernorm"), norm_of(f"{first}hidden_norm")
            self._norm = norm_of("norm")
            self._tokens = draft_vocabulary(weights, given.proposes, model.vocab)
            self._head = tensors.read(weights, Matrix(("lm_head",), (given.proposes,), hidden))
            for layer in given.recipe.layers:
                named = renamed(layer, "layers.0.", first) if layer is given.recipe.layers[0] else layer
                self._read_layer(weights, as_stored(weights, named), compiles(shape))
            self._embedding = Embedding(weights, tensors, model, hidden)
            self._given = given
            self._chain = self._compile_chain(weights, model)
        model.record_states(self.aux_layers)
        logging.getLogger(__name__).info(
            "%s of %s: hidden states after %s layers, norm_before_residual %s",
            self.kind,
            files.folder,
            self.aux_layers,
            given.norm_before_residual,
        )

    def _compile_chain(self, weights: Weights, model: Target) -> "HeadChain | None":
        """Compiled drafting of whole chains, for small heads of compiled targets; None if unsupported."""
        given, (layer, *further), embed = self._given, self._layers, model.embedding_product
        other = self.kind != "eagle3" or given.keys.norm_output or further or self.table is not None
        if other or layer.compiled is None or embed is None or len(self._tokens) != model.vocab:
            return None
        from specchat.engine.cpu.drafting.heads import HeadChain

        norms = self._token_norm, self._feature_norm, self._norm
        token, feature, last = (read_norm(weights, one) for one in norms)
        return HeadChain(
            layer.compiled,
            embed,
            model.config.recipe.embed_scale,
            (token, feature, last),
            given.shape.recipe.norm.eps,
            read_linear(weights, self._head)[0],
            self._made,
            given.norm_before_residual,
        )

    @torch.inference_mode()
    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        """Draft a chain, as `CachedDecoder.draft_chain`."""
        del skip
        last = start + len(tokens) - 1
        if self._chain is None or not start or len(tokens) > TILE or last + chain.limit > self.context:
            return []
        known = max(start - 1, min(last, len(self.target.tokens)))
        features = torch.cat([self.features(start - 1, known), self._made[known:last]])
        return self._chain.draft_chain(tokens, start, features, chain)

    def feature(self, states: Tensor) -> Tensor:
        tensors = self.tensors
        states = norm(self._before, states, tensors)
        if self._each:
            parts = states.chunk(len(self._each), -1)
            states = torch.cat([norm(one, part, tensors) for one, part in zip(self._each, parts, strict=True)], -1)
        return tensors.product(states, self._fc)

    def step(self, embedded: Tensor, features: Tensor, rows: HeadRows) -> Tensor:
        normed = norm(self._feature_norm, features, self.tensors)
        inputs = torch.cat([norm(self._token_norm, embedded, self.tensors), normed], -1)
        first, *further = self._layers
        hidden = first(normed if self._given.norm_before_residual else features, rows, inputs)
        for layer in further:
            hidden = layer(hidden, rows)
        return hidden

    def next_features(self, hidden: Tensor) -> Tensor:
        return norm(self._norm, hidden, self.tensors) if self._given.keys.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self.tensors.product(norm(self._norm, hidden, self.tensors), self._head)
        return scatter(scores, self._tokens, self.vocab)

    def memory(self) -> int:
        return super().memory() + (0 if self._chain is None else self._chain.memory())


def _agree(files: HeadFiles, weights: Weights, given: HeadSettings, kind: Head) -> None:
    """Check that tensors which change the computation are present exactly where the settings ask for them.

    Raises:
        ModelError: they are not.
    """
    if kind == "peagle" and "mask_hidden" not in weights:
        raise ModelError(
            f"{files.folder}: tensor mask_hidden is missing, and P-EAGLE needs it. EAGLE-3 has heads.eagle3."
        )
    if kind == "eagle3" and "mask_hidden" in weights:
        raise ModelError(f"{files.folder} holds P-EAGLE, as its tensor mask_hidden tells. Name it under heads.peagle.")
    further = f"layers.{given.shape.layers}.input_layernorm.weight"
    for asked, name in (
        (given.keys.norm_before_fc, "input_norm.weight"),
        (given.keys.fc_norm, "fc_norm.0.weight"),
        (False, further),
    ):
        if name in weights and not asked:
            raise ModelError(f"{files.folder}: tensor {name} is there, and config.json does not ask for it.")
