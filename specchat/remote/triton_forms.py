"""Requests and replies of the models that Triton serves: vLLM's backend and TensorRT-LLM's."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from specchat.engine.protocol.options import Limits, Sampling
from specchat.remote.content import read_content
from specchat.remote.json_values import whole
from specchat.remote.openai import OUR_NAMES, Chunk, EventReader, ServerFigures

NO_LIMIT = 1 << 20
"""Tokens of a reply that only the context ends; vLLM's own default is 16."""
_UNENDED = ("", "None")


class TritonReader(EventReader):
    """Reads events with tensors by name."""

    counts = ""
    """The output with the tokens of an event."""

    def read(self, event: Mapping[str, Any]) -> Chunk:
        text = self.piece(event.get("text_output"))
        told = whole(event.get(self.counts)) if self.counts else None
        self._tokens += told if told is not None else bool(text)
        self.prompt_tokens = whole(event.get("num_input_tokens"), self.prompt_tokens)
        ends = event.get("finish_reason")
        ends = ends if isinstance(ends, str) and ends not in _UNENDED else ""
        return Chunk(text, "", self._tokens, prompt_tokens=self.prompt_tokens, ends=ends)

    def piece(self, text: Any) -> str:
        """The new part of the text."""
        return read_content(text).text


class VllmBackendReader(TritonReader):
    counts = "num_output_tokens"


class LlmApiReader(TritonReader):
    """Each event has the whole text so far; the sums of drafts come with each, and count at the end."""

    _so_far = ""

    def read(self, event: Mapping[str, Any]) -> Chunk:
        chunk = super().read(event)
        drafted = whole(event.get("total_draft_tokens"))
        accepted = whole(event.get("total_accepted_draft_tokens"))
        if drafted and accepted is not None and accepted <= drafted:
            # An event is a step, which writes one token more than it accepted.
            self.figures = ServerFigures(self._tokens, drafted, accepted)
            self.completion_tokens = self._tokens + accepted
        return chunk

    def piece(self, text: Any) -> str:
        told = super().piece(text)
        before, self._so_far = self._so_far, told if told.startswith(self._so_far) else self._so_far + told
        return told.removeprefix(before)


class TritonForm(ABC):
    """The inputs and outputs of a model."""

    title: ClassVar[str]
    mark: ClassVar[str]
    """An input that only this form has."""
    options: ClassVar[Mapping[str, str]]
    reader: ClassVar[type[TritonReader]]
    note: ClassVar[str]

    @abstractmethod
    def body(self, prompt: str, sampling: Mapping[str, Any], limits: Limits, inputs: Collection[str]) -> dict[str, Any]:
        """The tensors of a request with OpenAI's names of `sampling`; a model has some of the `inputs` only."""

    @staticmethod
    def given(fields: Mapping[str, Any], inputs: Collection[str]) -> dict[str, Any]:
        """The fields that the model takes."""
        return {name: value for name, value in fields.items() if name in inputs}


class VllmBackend(TritonForm):
    title: ClassVar[str] = "Triton with vLLM's backend"
    mark: ClassVar[str] = "sampling_parameters"
    options: ClassVar[Mapping[str, str]] = OUR_NAMES
    reader: ClassVar[type[TritonReader]] = VllmBackendReader
    note: ClassVar[str] = "vLLM's backend for Triton tells no drafts: whether it drafts is not seen here"

    def body(self, prompt: str, sampling: Mapping[str, Any], limits: Limits, inputs: Collection[str]) -> dict[str, Any]:
        parameters = {**sampling, "max_tokens": limits.max_tokens or NO_LIMIT, "stop": list(limits.stop)}
        wanted = {
            "exclude_input_in_output": True,
            "return_finish_reason": True,
            "return_num_input_tokens": True,
            "return_num_output_tokens": True,
        }
        own = {"text_input": prompt, "stream": True, "sampling_parameters": json.dumps(parameters, ensure_ascii=False)}
        return {**own, **self.given(wanted, inputs)}


class LlmApiBackend(TritonForm):
    title: ClassVar[str] = "Triton with TensorRT-LLM's backend"
    mark: ClassVar[str] = "sampling_param_max_tokens"
    options: ClassVar[Mapping[str, str]] = {"top_k": "top_k"}
    reader: ClassVar[type[TritonReader]] = LlmApiReader
    note: ClassVar[str] = "draft tokens and accepted ones are the server's own counts, at the end of a reply"

    def body(self, prompt: str, sampling: Mapping[str, Any], limits: Limits, inputs: Collection[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {name: value for name, value in sampling.items() if name != "top_k" or value}
        fields |= {"max_tokens": limits.max_tokens or NO_LIMIT, "exclude_input_from_output": True}
        fields["return_perf_metrics"] = True
        if limits.stop:
            fields["stop"] = list(limits.stop)
        named = {f"sampling_param_{name}": value for name, value in fields.items()}
        wanted = self.given({**named, "return_finish_reason": True}, inputs)
        return {"text_input": prompt, "streaming": True, **wanted}


FORMS: tuple[TritonForm, ...] = (VllmBackend(), LlmApiBackend())


def form_of(inputs: Collection[str]) -> TritonForm | None:
    """The form of a model with these inputs."""
    return next((form for form in FORMS if "text_input" in inputs and form.mark in inputs), None)


def unsent(sampling: Sampling, form: TritonForm, inputs: Collection[str]) -> str:
    """An option that the model would leave out without a word; empty if there is none."""
    if isinstance(form, VllmBackend):
        return ""
    if sampling.logit_bias:
        return "logit_bias"
    usual = Sampling()
    names = ("top_p", "presence_penalty", "frequency_penalty")
    changed = (name for name in names if getattr(sampling, name) != getattr(usual, name))
    return next((name for name in changed if f"sampling_param_{name}" not in inputs), "")
