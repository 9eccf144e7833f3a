"""Drafts that the host makes for a target on a device: by heads beside it there, or by a model on the host.

A model on the host drafts while the device verifies (PEARL, Liu et al. 2024). It assumes that the whole draft is
accepted and that it predicts the target's next token too. If so, the next draft has a head start; otherwise the work is
dropped.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from specchat.engine.decoding.draft import Chain, Proposal
from specchat.engine.decoding.host_loops import HostDraft, HostLoops
from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.device.graphs import Graphs
from specchat.engine.kernels.choose import choose
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.protocol.options import Acceptance

LIKELY = 0.5
"""Least probability of the draft for drafting on. A pass then saves a later one, or delays the outcome by half a pass
on average."""


class LoopsBeside(HostLoops):
    """Host loops whose drafts the executor sends to the device."""

    def start(self, acceptance: Acceptance) -> None:
        """Start a step as for `coupled`: the device judges by the tokens alone."""
        super().start("coupled")
        self.timed = acceptance == "coupled" or self.sampler.greedy

    def draft_ahead(self, done: Callable[[], bool]) -> None:
        """Use the time until the verify pass is `done`; does nothing where drafts need the outcome."""


class LoopsAhead(LoopsBeside):
    """Host loops that draft with the model "draft"."""

    def begin(self, rules: ReplyRules, prompt: Sequence[int]) -> None:
        self._ready: list[tuple[int, float]] = []
        """Tokens after the text and their probabilities: the part of the next draft made so far."""
        super().begin(rules, prompt)

    def start(self, acceptance: Acceptance) -> None:
        super().start(acceptance)
        self._chain_made: Chain | None = None
        self._following: list[tuple[int, float]] = []
        """Tokens after the text and the draft."""

    def make(self, proposal: Proposal) -> HostDraft:
        made = super().make(proposal)
        self._ready = []
        if isinstance(proposal, Chain):
            self._chain_made = proposal
        return made

    def _draft_token(self, chain: Chain, made: HostDraft, policy: LengthPolicy | None) -> bool:
        draft = made.draft
        if (node := len(draft.tokens)) >= len(self._ready):
            return super()._draft_token(chain, made, policy)
        token, probability = self._ready[node]
        draft.tokens.append(token)
        draft.confidence.append(probability)
        self.history.push(token)
        return False

    def draft_ahead(self, done: Callable[[], bool]) -> None:
        """Draft on while the device verifies a chain, until that is `done` or acceptance is unlikely.

        The number of tokens depends on time, so this runs only where drafts cannot change the text.
        """
        if (chain := self._chain_made) is None or not self.timed:
            return
        draft = self.drafting.draft
        drafted, room = len(draft.tokens), self._models["draft"].model.context - len(self.token_ids)
        for token in draft.tokens:
            self.history.push(token)
        try:
            while len(draft.tokens) < min(drafted + 1 + chain.limit, room):
                if prod(draft.confidence) < LIKELY or done():
                    break
                self._draft_token(chain, self.drafting, None)
        finally:
            for token in draft.tokens:
                self.history.pop(token)
        self._following = list(zip(draft.tokens[drafted:], draft.confidence[drafted:], strict=True))
        del draft.tokens[drafted:], draft.confidence[drafted:]

    def commit(self, tokens: Sequence[int], path: Sequence[int]) -> None:
        expected = [*self.drafting.draft.tokens, *(token for token, _ in self._following[:1])]
        self._ready = self._following[1:] if list(tokens) == expected else []
        super().commit(tokens, path)

    def rewind(self, token_ids: Sequence[int]) -> None:
        self._ready = []
        super().rewind(token_ids)


class Picker:
    """Sampler on the device for the token after a node of a chain: it returns the token, not all logits."""

    def __init__(self, state: VerifyState, drawn: Scored, vocab: int, width: int, graphs: Graphs) -> None:
        """Sample from `vocab` tokens; logits have `width` columns at most, and a row of `drawn` is overwritten."""
        self._state, self._drawn, self._vocab, self._graphs = state, drawn, vocab, graphs
        # Kernels are compiled once for aligned pointers, and other rows of logits may start anywhere.
        self._logits = torch.zeros(1, width, device=state.fed.device)

    def __call__(self, logits: Tensor, node: int) -> tuple[int, float]:
        """Return the token after `node` and its probability, from logits float32 [1, vocab]; waits for the device."""
        columns = min(self._vocab, logits.shape[1])
        self._logits[:, :columns].copy_(logits[:, :columns])
        self._state.node.fill_(node)

        def pick() -> None:
            process(self._logits, self._state, 0, self._drawn, 1, columns)
            choose(self._drawn, self._state, 0, 1, self._state.fed[1:])

        self._graphs.eagerly(pick)
        return int(self._state.fed[node + 1].item()), self._state.sure[node].item()

    def memory(self) -> int:
        """Bytes held."""
        return self._logits.nbytes
