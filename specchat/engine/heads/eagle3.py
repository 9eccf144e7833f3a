"""The head of EAGLE-3 (Li et al. 2025).

Of the target's states after some of its layers a feature is made; e is a token's embedding, and

    f = W [h1, h2, h3]                                 of the text; of a drafted token what the head made before it
    g = layer([norm(e), norm(f)]) onto f               onto norm(f) with norm_before_residual
    g = layer(norm(g)) onto g                          for each further layer
    scores = V norm(g)                                 of the tokens that the head may propose

With norm_before_fc [h1, h2, h3] is normed before W, with fc_norm each of the three by itself. The files of SafeAILab,
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
from specchat.engine.heads.layer import HeadLayer, Places
from specchat.engine.heads.settings import Eagle3Settings
from specchat.engine.heads.target import Target
from specchat.engine.heads.tensors import Embedding, fits_target, proposed
from specchat.engine.model.chain_parameters import ChainParameters
from specchat.engine.model.decoder import Skip
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rows import TILE, Linear
from specchat.engine.model.weights import Weights
from specchat.engine.strategy import Head

if TYPE_CHECKING:
    from specchat.engine.cpu.head_chain import HeadChain


class Eagle3Head(FeatureHead):
    """Keys: "fc.weight", the layer's with "hidden_norm", "norm.weight", "lm_head.weight", and where the head may not
    propose all tokens "d2t" int64 [rows of the head], which is added to a row's number, and "t2d" bool [vocab]."""

    kind: ClassVar[Head] = "eagle3"

    _embedding: Embedding

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = Eagle3Settings.read(files, model.config, self.kind)
        c, inputs = given.layer, len(given.states) * model.config.hidden
        with Weights(files, model.device) as weights:
            fits_target(files, weights, model.config.hidden, c.hidden, inputs)
            _agree(files, weights, given, self.kind)
            prefix = "midlayer." if "midlayer.hidden_norm.weight" in weights else "layers.0."

            def norm(name: str, size: int) -> RMSNorm:
                return RMSNorm(weights.get(f"{name}.weight", size), c.norm_eps)

            self._before = norm("input_norm", inputs) if given.norm_before_fc else None
            each = range(len(given.states) if given.fc_norm else 0)
            self._each = [norm(f"fc_norm.{i}", model.config.hidden) for i in each]
            self._fc = Linear(weights.get("fc.weight", c.hidden, inputs), drafting=True)
            self._token_norm = norm(f"{prefix}input_layernorm", c.hidden)
            self._feature_norm = norm(f"{prefix}hidden_norm", c.hidden)
            self._layer = HeadLayer(weights, prefix, c, 2 * c.hidden, model)
            self._further = [
                (
                    norm(f"layers.{i}.input_layernorm", c.hidden),
                    HeadLayer(weights, f"layers.{i}.", c, c.hidden, model),
                )
                for i in range(1, c.layers)
            ]
            self._norm = norm("norm", c.hidden)
            self._tokens = proposed(weights, given.proposes, model.vocab)
            self._head = Linear(weights.get("lm_head.weight", given.proposes, c.hidden), drafting=True)
            self._embedding = Embedding(weights, model, c.hidden)
            super().__init__(target, weights.count(), c.hidden)
            self._given = given
            self._chain = self._one_go(weights, prefix, model)
        model.record_states(given.states)
        logging.getLogger(__name__).info(
            "%s of %s: states after %s layers, norm_before_residual %s",
            self.kind,
            files.folder,
            given.states,
            given.norm_before_residual,
        )

    def _one_go(self, weights: Weights, prefix: str, model: Target) -> "HeadChain | None":
        """What drafts a chain without being asked for each token: for small heads as most are, of compiled targets."""
        given, layer, embed = self._given, self._layer.compiled, model.packed_embeddings
        other = self.kind != "eagle3" or given.norm_output or self._further or "embed_tokens.weight" in weights
        if other or layer is None or embed is None or len(self._tokens) != model.vocab:
            return None
        from specchat.engine.cpu.head_chain import HeadChain

        hidden = given.layer.hidden
        names = (f"{prefix}input_layernorm", f"{prefix}hidden_norm", "norm")
        token, feature, last = (weights.get(f"{name}.weight", hidden) for name in names)
        scoring = weights.get("lm_head.weight", model.vocab, hidden)
        eps, onto = given.layer.norm_eps, given.norm_before_residual
        return HeadChain(
            layer.of_layers,
            embed,
            model.config.recipe.embed_scale,
            (token, feature, last),
            eps,
            scoring,
            self._made,
            onto,
        )

    @torch.inference_mode()
    def drafted(self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip) -> list[tuple[int, float]]:
        """As `CachedDecoder.drafted`."""
        del skip
        last = start + len(tokens) - 1
        if self._chain is None or not start or len(tokens) > TILE or last + chain.limit > self.context:
            return []
        known = max(start - 1, min(last, len(self.target.tokens)))
        features = torch.cat([self.features(start - 1, known), self._made[known:last]])
        return self._chain.drafted(tokens, start, features, chain)

    @property
    def looked_at(self) -> Sequence[int]:
        return self._given.states

    def feature(self, states: Tensor) -> Tensor:
        states = states if self._before is None else self._before(states)
        if self._each:
            parts = states.chunk(len(self._each), -1)
            states = torch.cat([norm(part) for norm, part in zip(self._each, parts, strict=True)], -1)
        return self._fc(states)

    def step(self, embedded: Tensor, features: Tensor, at: Places) -> Tensor:
        normed = self._feature_norm(features)
        x = torch.cat([self._token_norm(embedded), normed], -1)
        hidden = self._layer(x, normed if self._given.norm_before_residual else features, at)
        for norm, layer in self._further:
            hidden = layer(norm(hidden), hidden, at)
        return hidden

    def fed_on(self, hidden: Tensor) -> Tensor:
        return self._norm(hidden) if self._given.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self._head(self._norm(hidden))
        whole = scores.new_full((len(scores), self.vocab), float("-inf"))
        return whole.index_copy_(1, self._tokens, scores)

    def memory(self) -> int:
        layers = self._layer.memory() + sum(layer.memory() for _, layer in self._further)
        chain = 0 if self._chain is None else self._chain.memory()
        more = self._embedding.memory() + 4 * self._made.numel() + chain
        return self._fc.memory() + layers + self._head.memory() + more


def _agree(files: HeadFiles, weights: Weights, given: Eagle3Settings, kind: Head) -> None:
    """Check that tensors which change what is computed are there where, and only where, the settings ask for them.

    Raises:
        ModelError: they are not.
    """
    if kind == "peagle" and "mask_hidden" not in weights:
        raise ModelError(
            f"{files.folder}: tensor mask_hidden is missing, and P-EAGLE needs it. EAGLE-3 has heads.eagle3."
        )
    if kind == "eagle3" and "mask_hidden" in weights:
        raise ModelError(f"{files.folder} holds P-EAGLE, as its tensor mask_hidden tells. Name it under heads.peagle.")
    further = f"layers.{given.layer.layers}.input_layernorm.weight"
    for asked, name in (
        (given.norm_before_fc, "input_norm.weight"),
        (given.fc_norm, "fc_norm.0.weight"),
        (False, further),
    ):
        if name in weights and not asked:
            raise ModelError(f"{files.folder}: tensor {name} is there, and config.json does not ask for it.")
