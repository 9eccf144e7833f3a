"""A draft model on a GPU of its own: it runs and chooses there, and token ids come to the host."""

from collections.abc import Callable, Sequence

from torch import Tensor

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.device.beside import LoopsAhead, Picker
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel, Done
from specchat.engine.device.stepwise import DeviceRows
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.model.passes import Skip


class RowsThere(DeviceRows):
    """A model on a device, whose logits stay there."""

    def _after(
        self, tokens: Sequence[int], start: int, skip: Skip, last: int, meanwhile: Callable[[Done], None] | None
    ) -> Tensor:
        del meanwhile
        return self._model.logits_there(tokens, start, skip, last)


class LoopsApart(LoopsAhead):
    """Host loops over a draft model that chooses on its own device, where a choice does not depend on the text."""

    def __init__(self, draft: CachedModel[DeviceModel], vocab: int, policies: LengthPolicies, graphs: Graphs) -> None:
        """`vocab`: tokens that may be chosen; `graphs` are those of the draft's device."""
        model = draft.model
        self._state = VerifyState.create(vocab, VERIFY_ROWS, model.device)
        self._drawn = Scored.create(1, model.vocab, model.device)
        self._choose = Picker(self._state, self._drawn, vocab, model.vocab, graphs)
        super().__init__({"draft": RowsThere.sharing(draft, vocab)}, vocab, policies)

    def begin(self, rules: ReplyRules, prompt: Sequence[int]) -> None:
        super().begin(rules, prompt)
        self._state.set_sampling(rules.sampling)

    def choose_there(self, logits: Tensor, position: int) -> tuple[int, float]:
        """Return the token at `position` and its probability, from logits float32 [1, vocab] on the device."""
        self._state.length.fill_(position - 1)
        return self._choose(logits, 0)

    def _pick_token(self, model: HostModel, hidden: Tensor, node: int, draft: Draft) -> tuple[int, float]:
        if not self.timed or self.sampler.penalised:
            return super()._pick_token(model, hidden, node, draft)
        return self.choose_there(model.logits(hidden[-1:]), len(self.token_ids) + node)

    def memory(self) -> int:
        """Bytes held on the device."""
        return self._choose.memory() + sum(tensor.nbytes for tensor in (*self._state, *self._drawn))
