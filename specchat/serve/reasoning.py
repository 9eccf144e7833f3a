"""Fields that say how much a model reasons, of all APIs, as arguments of its chat template."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from specchat.engine.protocol.options import Arguments
from specchat.engine.text.template_choices import EFFORTS, GRADES, SWITCHES
from specchat.serve.errors import ApiError
from specchat.serve.lenient import Lenient

Effort = Annotated[str, Field(pattern=f"^({'|'.join(EFFORTS)})$")]


class AskedReasoning(Lenient):
    """OpenAI's `reasoning` of responses; `enabled` is OpenRouter's."""

    effort: Effort | None = None
    summary: str | None = None
    enabled: bool | None = None


class Thinking(Lenient):
    """Anthropic's `thinking`, which others have too; "adaptive" leaves it to the model."""

    type: Literal["enabled", "disabled", "adaptive", "auto"] = "adaptive"


class OutputEffort(Lenient):
    """The effort in Anthropic's `output_config`; it grades reasoning, and does not switch it on."""

    effort: Effort | None = None


class ReasoningFields(Lenient):
    """The fields; `chat_template_kwargs` go before the others."""

    reasoning_effort: Effort | None = None
    reasoning: AskedReasoning = Field(default_factory=AskedReasoning)
    thinking: Thinking = Field(default_factory=Thinking)
    output_config: OutputEffort | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    def template(self, choices: Mapping[str, tuple[str | bool, ...]]) -> Arguments:
        """The arguments that the chat template knows; a model without any reasons as it always does.

        Args:
            choices: values by argument, see `template_choices`.

        Raises:
            ApiError: one is neither true, false nor a text.
        """
        wanted = {**self._reasoning(choices), **self.chat_template_kwargs}
        known = {name: value for name, value in sorted(wanted.items()) if name in choices}
        for name, value in known.items():
            if not isinstance(value, bool | str):
                field = f"chat_template_kwargs.{name}"
                raise ApiError(400, f"{field}: true, false or a text can be given.", field)
        return tuple(known.items())

    def _reasoning(self, choices: Mapping[str, tuple[str | bool, ...]]) -> dict[str, str | bool]:
        effort = self.reasoning_effort or self.reasoning.effort
        asked = {"enabled": True, "disabled": False}.get(self.thinking.type)
        switches = (asked, self.enable_thinking, self.reasoning.enabled, effort and effort != "none")
        on = next((switch for switch in switches if isinstance(switch, bool)), None)
        grade = self.output_config.effort if self.output_config else None
        effort = "none" if on is False else effort or grade
        found: dict[str, str | bool] = {name: on for name in SWITCHES if on is not None and on in choices.get(name, ())}
        if effort:
            found |= {name: _nearest(effort, choices[name]) for name in GRADES if name in choices}
        return found


def _nearest(effort: str, known: tuple[str | bool, ...]) -> str:
    """The effort among the `known` that is next to another; none alone is no reasoning, if it can be had."""
    if effort in known:
        return effort
    others = [one for one in EFFORTS[1:] if one in known]
    return min(others, key=lambda one: abs(EFFORTS.index(one) - EFFORTS.index(effort)), default=effort)
