"""Reads a prompt and tells the log-probabilities of its tokens, for `Generate.scored`."""

from specchat.engine.cross_tokenizer.token_bytes import bytes_of
from specchat.engine.decoding import host
from specchat.engine.decoding.outcome import Logprobs
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.protocol.events import TokenLogprob
from specchat.engine.runners.runner import Runner
from specchat.engine.text.tokenizer import Tokenizer


def token_logprob(found: Logprobs, tokenizer: Tokenizer) -> TokenLogprob:
    """A token's log-probabilities with texts."""
    top = tuple((bytes_of(tokenizer, other), value) for other, value in found.top)
    return TokenLogprob(bytes_of(tokenizer, found.token), found.value, top, found.token not in tokenizer.hidden)


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
        rest = (token_logprob(one, tokenizer) for one in self._found)
        return (TokenLogprob(bytes_of(tokenizer, prompt[0]), None), *rest)
