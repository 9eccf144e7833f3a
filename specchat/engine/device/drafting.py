"""Draft loops on a device: captured passes over one token of a chain, or one level of a tree."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import WIDTH, Chain, Role, Tree
from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.device.clock import SpinWait
from specchat.engine.device.decoder import DeviceDecoder, Exit
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.heads import CapturedHead, captured_head
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.trees import DeviceTrees
from specchat.engine.device.verify import TextEnd
from specchat.engine.kernels.choose import choose
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.strategy import MAX_DRAFT_LENGTH

FIRST = 2
"""Passes of a model that differ: the first, and any later one."""


class PassValues:
    """Values of passes on their way to the host: probabilities of draft tokens, or the largest value of each level.

    Attributes:
        values: float32 [VERIFY_ROWS], in locked memory where a GPU writes them.
    """

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.values = torch.zeros(VERIFY_ROWS, pin_memory=on_gpu)
        self._passed = [torch.cuda.Event(blocking=True) if on_gpu else None for _ in range(VERIFY_ROWS)]
        self._waiting, self._device = SpinWait(), device

    def launched(self, number: int) -> None:
        """Note that pass `number`, counted from 0, has been launched."""
        if (event := self._passed[number]) is not None:
            event.record(torch.cuda.current_stream(self._device))

    def after(self, number: int) -> float:
        """Wait for pass `number`, and return its value."""
        if (event := self._passed[number]) is not None:
            self._waiting.wait(event)
        return float(self.values[number])


class PassInput(NamedTuple):
    """Input token of a pass, and its position in the cache: int32 [1] each."""

    token: Tensor
    slot: Tensor


@dataclass
class Growing:
    """The draft under way, of at most `most` passes, of which `done` are launched; `policy` ends a chain."""

    proposal: Chain | Tree
    policy: LengthPolicy | None
    most: int
    done: int = 0

    def ends(self, value: float) -> bool:
        """Return true if drafting ends after the pass with this value."""
        if isinstance(self.proposal, Tree):
            return value < self.proposal.least
        assert self.policy is not None
        return self.policy.ends(value)


class CapturedDrafts:
    """Drafter of one chain or tree at a time, with passes still to come.

    Two passes are launched at once. The host decides on further ones when the first is done and it has no other work.
    There are two graphs a strategy, as later passes differ only in the device's node count, two for each number of
    layers that drafted by early exit, and one for each level where levels have heads of their own.
    """

    def __init__(
        self,
        models: dict[Role, DeviceDecoder],
        state: VerifyState,
        drawn: Scored,
        text: TextEnd,
        trees: DeviceTrees,
        graphs: Graphs,
    ) -> None:
        """Initialise; `drawn` receives the distributions of sampled tokens."""
        self._models, self._state, self._drawn, self._text = models, state, drawn, text
        self.trees, self._graphs, device = trees, graphs, state.fed.device
        self._heads: dict[Role, CapturedHead[Any]] = {}
        self.whole = False
        """True to run every pass, however unlikely."""
        self._flags = SkipFlags(models["target"].config.recipe, device)
        self._input = PassInput(*(torch.zeros(1, device=device, dtype=torch.int32) for _ in range(2)))
        self._values = PassValues(device)

    def add_head(self, role: Role, head: CachedModel[Any], target: DeviceModel) -> bool:
        """Register a head of `target`; return True if captured passes can run it."""
        if (made := captured_head(head.model, target, self._state, self._text.recent)) is None:
            return False
        self._heads[role], head.asynchronous, head.read_again = made, True, len(self._text.recent)
        return True

    @property
    def longest(self) -> int:
        """Passes after which a draft launches no further graph for the first time."""
        return max([FIRST, *(head.passes for head in self._heads.values())])

    def runs(self, proposal: Chain | Tree) -> bool:
        """Return true if captured passes can make this proposal."""
        return proposal.model in self._models or proposal.model in self._heads

    def start(self, proposal: Chain | Tree, policy: LengthPolicy | None) -> None:
        """Begin to draft; `policy` ends a chain."""
        most = min(proposal.limit, proposal.levels) if isinstance(proposal, Tree) else proposal.limit
        self._draft = Growing(proposal, policy, most)
        if isinstance(proposal, Tree):
            self.trees.start(proposal.limit, proposal.least)
        elif proposal.skip is not None:
            self._flags.set(proposal.skip)
        for _ in range(min(self._draft.most, 2)):
            self._run_pass()

    def finish(self) -> int:
        """Draft on until a further token is unlikely to pay off; return the number of nodes at most."""
        draft, limit = self._draft, self._draft.proposal.limit
        while draft.done < draft.most and (self.whole or not draft.ends(self._values.after(draft.done - 2))):
            self._run_pass()
        if isinstance(draft.proposal, Tree):
            self._graphs.eagerly(self.trees.settle)
            return min(limit, WIDTH + WIDTH * WIDTH * (draft.done - 1))
        return min(limit, draft.done)

    def kept(self) -> None:
        """After verification, move the accepted path of a tree after the text in its model's cache."""
        # A head reads accepted tokens again, with the target's own states.
        proposal = self._draft.proposal
        if isinstance(proposal, Tree) and (model := self._models.get(proposal.model)):
            self._graphs.eagerly(partial(self.trees.keep, model))

    def _run_pass(self) -> None:
        """Draft one more token or level."""
        draft, proposal = self._draft, self._draft.proposal
        head = self._heads.get(proposal.model)
        number = min(draft.done, FIRST - 1 if head is None else head.passes - 1)
        layers = proposal.layers if isinstance(proposal, Chain) else 0
        key = (proposal.strategy, number, layers) if layers else (proposal.strategy, number)
        self._graphs.run(key, partial(self._pass, proposal, number))
        self._values.launched(draft.done)
        draft.done += 1

    @torch.inference_mode()
    def _pass(self, proposal: Chain | Tree, node: int) -> None:
        """Run one pass, over node 0 or the device's current node, and copy its values to the host."""
        if node == 0:
            self._state.node.zero_()
        head = self._heads.get(proposal.model)
        columns = min(self._state.vocab, self._models[proposal.model].config.vocab if head is None else head.vocab)
        if isinstance(proposal, Tree):
            self._level(proposal, node, columns)
            self._values.values[:MAX_DRAFT_LENGTH].copy_(self.trees.values, non_blocking=True)
            return
        process(self._logits(proposal, node), self._state, 0, self._drawn, 1, columns)
        choose(self._drawn, self._state, 0, 1, self._state.fed[1:])
        if head is not None and (chance := head.chance) is not None:
            self._state.sure.index_copy_(0, self._state.node.long(), chance)
        self._state.node.add_(1)
        self._values.values.copy_(self._state.sure, non_blocking=True)

    def _level(self, tree: Tree, level: int, columns: int) -> None:
        if not level:
            self.trees.begin()
            self.trees.branch(self._logits(tree, 0), 1, columns)
        elif (head := self._heads.get(tree.model)) is not None:
            self.trees.branch(head.level(self.trees.growth, level), WIDTH, columns)
        else:
            model = self._models[tree.model]
            self.trees.run(model, None)
            self.trees.branch(model.logits(0, WIDTH), WIDTH, columns)

    def _logits(self, proposal: Chain | Tree, node: int) -> Tensor:
        """Run a model or a head on a node of a chain; return logits float32 [1, >= vocab] after it."""
        if (head := self._heads.get(proposal.model)) is not None:
            return head.node(node)
        model, state = self._models[proposal.model], self._state
        if proposal.model == "draft" and node == 0:
            # Over the last two tokens of the text, so that the draft model's cache never lags behind.
            torch.sub(state.length, 1, out=self._input.slot)
            model.forward(self._text.tail, self._input.slot, 2)
            return model.logits(1, 1)
        flags, early = None, None
        if isinstance(proposal, Chain):
            flags = None if proposal.skip is None else self._flags
            early = Exit(proposal.layers, proposal.adapt) if proposal.layers else None
        torch.index_select(state.fed, 0, state.node, out=self._input.token)
        torch.add(state.length, state.node, out=self._input.slot)
        model.forward(self._input.token, self._input.slot, 1, flags, early=early)
        return model.logits(0, 1)
