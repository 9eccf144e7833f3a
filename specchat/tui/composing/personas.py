"""Infer a chat's persona and preset from its settings."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from specchat.config.personas import Persona, persona_of
from specchat.config.presets import Preset
from specchat.engine.options import Sampling

OWN = "own"
"""The name of a sampling that is no preset's."""


_WORDS = {
    "temperature": "temperature",
    "top_k": "top-k",
    "top_p": "top-p",
    "min_p": "min-p",
    "repetition_penalty": "repetition",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
}


def persona_name(system: str, personas: Iterable[Persona]) -> str:
    """A word for a chat's system prompt; empty where it has none."""
    persona = persona_of(system, personas)
    return persona.name if persona else "own system prompt" if system else ""


def preset_name(sampling: Sampling, presets: Sequence[Preset]) -> str:
    """The preset that samples like this."""
    return next((preset.name for preset in presets if apply(preset, sampling) == sampling), OWN)


def preset_words(preset: Preset) -> str:
    """`temperature 0.4, top-p 0.9`: what differs from sampling as it is without any option."""
    plain = Sampling()
    values = {
        words: getattr(preset.sampling, key)
        for key, words in _WORDS.items()
        if key == "temperature" or getattr(preset.sampling, key) != getattr(plain, key)
    }
    return ", ".join(f"{words} {value:g}" for words, value in values.items())


def apply(preset: Preset, sampling: Sampling) -> Sampling:
    """The preset's sampling; seed and biases stay."""
    return replace(preset.sampling, seed=sampling.seed, logit_bias=sampling.logit_bias)
