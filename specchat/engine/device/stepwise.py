"""Replies that the host writes with models on a device, pass by pass: under a grammar, or with log-probabilities.

The captured step keeps the text on the device, which such replies need on the host at each step. So passes are captured
alone, and logits are copied; meanwhile the host works out the masks of a grammar. Steps take longer than captured ones;
they verify chains alone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import Chain, Copy, Proposal, Role
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.host_loops import HostDraft
from specchat.engine.decoding.row_invariance import ChainOnlyModel
from specchat.engine.device.model import DeviceModel, Done
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, VERIFY_ROWS
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout


class DeviceRows(ChainOnlyModel):
    """A model on a device, whose cache it shares."""

    program = "a device's model, pass by pass,"

    def __init__(self, model: DeviceModel, vocab: int) -> None:
        """`vocab`: tokens that may be chosen."""
        self._model = model
        self.vocab = min(vocab, model.vocab)
        self.context = model.context

    @classmethod
    def sharing(cls, cached: CachedModel[DeviceModel], vocab: int) -> CachedModel[HostModel]:
        """Make one with the cache of `cached`."""
        made = CachedModel[HostModel](cls(cached.model, vocab))
        made.tokens = cached.tokens  # one cache, and one list of what it holds
        return made

    @property
    def block(self) -> int:
        return self._model.block

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Run `tokens` at position `start`; return logits float32 [at most VERIFY_ROWS, vocab] of the last ones."""
        if layout is not None:
            return super().forward(tokens, start, skip, layout)
        return self.run(tokens, start, skip)

    def run(
        self,
        tokens: Sequence[int],
        start: int,
        skip: Skip = NOTHING,
        meanwhile: Callable[[Done], None] | None = None,
    ) -> Tensor:
        for first in range(0, len(tokens), PASS_ROWS):
            block = tokens[first : first + PASS_ROWS]
            logits = self._after(block, start + first, skip, min(len(block), VERIFY_ROWS), meanwhile)
        return logits[:, : self.vocab].contiguous()

    def _after(
        self, tokens: Sequence[int], start: int, skip: Skip, last: int, meanwhile: Callable[[Done], None] | None
    ) -> Tensor:
        """Return logits float32 [last, >= vocab], as `DeviceModel.logits_after`."""
        return self._model.logits_after(tokens, start, skip, last, meanwhile)

    def write(self, tokens: Sequence[int], start: int) -> None:
        self._model.write(tokens, start)

    def next_logits(self, token: int, start: int) -> Tensor:
        return self._model.next_logits(token, start)

    def likeliest(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        return self._model.likeliest(tokens, start, skip)

    def parameters(self) -> int:
        return self._model.parameters()

    def memory(self) -> int:
        return 0


class StepwiseExecutor(HostExecutor):
    """Executor on the host over models on a device, or beside them."""

    joins = False

    def __init__(
        self,
        on_device: Mapping[Role, CachedModel[DeviceModel]],
        on_host: Mapping[Role, CachedModel[HostModel]],
        vocab: int,
    ) -> None:
        models = dict(on_host)
        models |= {role: DeviceRows.sharing(cached, vocab) for role, cached in on_device.items()}
        self._roles = frozenset(models)
        super().__init__(models, trees=False)

    def supports(self, proposal: Proposal) -> bool:
        """True for known chains, and for chains of whole models; heads, trees and exits run on a device alone."""
        if isinstance(proposal, Copy):
            return not proposal.likeliest
        return isinstance(proposal, Chain) and proposal.model in self._roles and not proposal.layers

    def _logits(self, fed: Sequence[int], layout: Layout | None, drafting: HostDraft) -> Tensor:
        """Logits of the pending token and the draft; the masks of a constraint are worked out while the pass runs."""
        target, loops, constraint = self.target, self.loops, self.loops.history.constraint
        if constraint is None:
            return super()._logits(fed, layout, drafting)
        assert isinstance(target, DeviceRows)
        ahead = partial(constraint.look_ahead, fed[1:], self.target.vocab)
        return target.run(fed, len(loops.token_ids) - 1, meanwhile=ahead)
