"""Reads a prompt and tells the log-probabilities of its tokens, for `Generate.scored`."""

from collections.abc import Callable

from specchat.engine.decoding import host
from specchat.engine.decoding.outcome import Logprobs
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.protocol.events import TokenLogprob
from specchat.engine.runners.runner import Runner
from specchat.engine.text.tokenizer import Tokenizer


def token_logprob(found: Logprobs, text_of: Callable[[int], str]) -> TokenLogprob:
    """A token's log-probabilities with texts."""
    return TokenLogprob(text_of(found.token), found.value, tuple((text_of(other), value) for other, value in found.top))


class ScoringReader:
    """Reads a prompt from its start, in passes that give logits: they take longer than those that only read."""

    def __init__(self, runner: Runner, top: int) -> None:
        """`top`: the number of likeliest tokens to tell of each place."""
        executor = runner.executor_of(None, top)
        assert isinstance(executor, host.HostExecutor)
        self._model, self._cached, self._top = executor.target, runner.target, top
        self._cached.rewind([])
        self._found: list[Logprobs] = []

    def fill(self, prompt: list[int]) -> bool:
        """Read a part of `prompt`; return False once all but its last token are cached."""
        held = len(self._cached.tokens)
        if block := prompt[held : len(prompt) - 1][:VERIFY_ROWS]:
            logits = self._model.logits(self._model.forward(block, held))
            following = prompt[held + 1 : held + 1 + len(block)]
            self._found += host.logprobs(logits, range(len(block)), following, self._top)
            self._cached.tokens += block
        return len(self._cached.tokens) < len(prompt) - 1

    def logprobs(self, prompt: list[int], tokenizer: Tokenizer) -> tuple[TokenLogprob, ...]:
        """The tokens of `prompt`, the first one without a log-probability."""
        rest = (token_logprob(one, tokenizer.text_of) for one in self._found)
        return (TokenLogprob(tokenizer.text_of(prompt[0]), None), *rest)
