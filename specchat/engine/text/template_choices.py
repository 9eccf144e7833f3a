"""The arguments of a chat template that users choose from, and the values that it tells apart."""

from collections.abc import Callable, Collection, Iterator, Mapping

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
USUAL = ("low", "medium", "high")
"""Efforts offered of a template that writes whatever word it is given."""
OTHER = "otherwise"
"""A word that no template knows as an effort."""
SWITCHES = ("enable_thinking", "thinking")
"""Arguments that turn reasoning on and off."""
GRADES = ("reasoning_effort", "reasoning_strength")
"""Arguments for how much reasoning is wanted."""

Values = tuple[str | bool, ...]
Rendered = Callable[[Mapping[str, str | bool]], str]
"""A prompt with further arguments; empty where the template rejects them."""


def choices(rendered: Rendered, taken: Collection[str]) -> Iterator[tuple[str, Values]]:
    """Yield each of the arguments `taken` that changes the prompt, with the values to choose from.

    Efforts are tried while reasoning is on, since some templates read them only then.
    """
    reasoning: dict[str, str | bool] = {}
    for name in (one for one in SWITCHES if one in taken):
        prompts = {value: rendered({name: value}) for value in (True, False)}
        if len({text for text in prompts.values() if text}) > 1:
            reasoning[name] = True
            yield name, tuple(value for value, text in prompts.items() if text)
    for name in (one for one in GRADES if one in taken):
        if values := tuple(_efforts(rendered, reasoning, name)):
            yield name, values


def _efforts(rendered: Rendered, reasoning: Mapping[str, str | bool], name: str) -> Iterator[str]:
    """Efforts that the template knows: their prompts differ from that of any other word."""
    unknown, default = rendered({**reasoning, name: OTHER}), rendered(reasoning)
    verbatim = OTHER in unknown.lower()
    prompts = {one: rendered({**reasoning, name: one}) for one in (USUAL if verbatim else EFFORTS)}
    known = {one: text for one, text in prompts.items() if text and text != unknown}
    if set(known.values()) - {default}:
        yield from known
