"""transformers' models of text, and one of Muse's text part, which it has within a model of images alone."""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationMixin, MuseGlimmerTextConfig, MuseGlimmerTextModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.muse_glimmer.modeling_muse_glimmer import MuseGlimmerPreTrainedModel

__all__ = ["AutoModelForCausalLM"]


class MuseOfText(MuseGlimmerPreTrainedModel, GenerationMixin):
    """The text part, with the logits of the whole, which `tests/families/test_text_parts.py` compares too."""

    config_class = MuseGlimmerTextConfig

    def __init__(self, config: MuseGlimmerTextConfig) -> None:
        super().__init__(config)
        self.model = MuseGlimmerTextModel(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **given: Any) -> CausalLMOutputWithPast:
        made = self.model(input_ids, **given)
        logits = self.config.output_multiplier * self.lm_head(made.last_hidden_state[:, -logits_to_keep:])
        cap = self.config.final_logit_softcapping
        return CausalLMOutputWithPast(logits=cap * torch.tanh(logits / cap), cache=made.cache)


AutoModelForCausalLM.register(MuseGlimmerTextConfig, MuseOfText, exist_ok=True)
