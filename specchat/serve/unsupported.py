"""Fields that would change a reply, and that specchat does not have: refused by name rather than ignored."""

from collections.abc import Collection, Mapping
from typing import Any

from specchat.serve.errors import ApiError

NEUTRAL: Mapping[str, Any] = {
    "n": 1,
    "best_of": 1,
    "typical_p": 1,
    "length_penalty": 1,
    "top_n_sigma": -1,
    "modalities": ["text"],
    "skip_special_tokens": True,
}
"""Fields with a value that asks for nothing, beside 0 and the like."""
FIELDS = """
allowed_token_ids audio bad_words chat_template container custom_logit_processor documents dry_multiplier dynatemp_range
ebnf echo functions include_stop_str_in_output logits_processors lora lora_path mcp_servers min_tokens mirostat n_probs
prompt_logprobs regex stop_regex stop_token_ids suffix thinking_token_budget thread truncate_prompt_tokens
use_beam_search web_search_options xtc_probability
"""
"""Fields of the APIs of OpenAI and Anthropic, of vLLM, SGLang and llama.cpp, that are refused by name."""
_FIELDS = frozenset(FIELDS.split())
CODES = {"thread": "thread_unsupported_request"}
"""Words by which clients find another way: Anthropic's then send the whole chat."""
INSTEAD = {"functions": ": give them as tools."}
"""Advice beside leaving the field out, by field."""


def refuse_unsupported(body: Mapping[str, Any], *own: str, has: Collection[str] = ()) -> None:
    """Refuse a request for what an endpoint does not have; `own` are such fields of it alone, and those that it `has`
    are taken.

    Raises:
        ApiError: the first such field.
    """
    for name, value in body.items():
        known = name in _FIELDS or name in NEUTRAL or name in own
        empty = value is None or (not value and name not in ("web_search_options", "skip_special_tokens"))
        if known and name not in has and not empty and value != NEUTRAL.get(name):
            words = f"{name} is not supported by specchat serve{INSTEAD.get(name, '. Leave it out.')}"
            raise ApiError(400, words, name, CODES.get(name, ""))
