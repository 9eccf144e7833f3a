"""A step on a GPU: draft passes and the verify pass with its verdict, captured; one copy to the host a step."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specchat.engine.api import Acceptance, Sampling
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.executor import Stepped
from specchat.engine.decoding.host import HostDrafts
from specchat.engine.device.buffers import VERIFY_ROWS
from specchat.engine.device.clock import Clock
from specchat.engine.device.decoder import ALIGNED, DeviceDecoder, SkipFlags
from specchat.engine.device.graphs import Graphs
from specchat.engine.kernels.choose import choose, judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.model.decoder import Decoder, Skip
from specchat.engine.strategies import MAX_DRAFT_LENGTH

VERIFY_BUCKETS = (1, 2, 4, 8, VERIFY_ROWS)
"""Rows of a verify pass; a draft between two of them takes the wider one, which costs about the same."""


@dataclass(frozen=True)
class Chain:
    """A draft of which passes may still be to come."""

    name: str
    limit: int
    one: Callable[[int], None]
    unsure: float


class DeviceExecutor:
    """The device holds the state of the text; the host's copy of it is one report behind while a step runs."""

    ahead = True

    def __init__(
        self,
        models: Mapping[Role, DeviceDecoder],
        vocab: int,
        device: torch.device,
        captured: bool = True,
        graphs: type[Graphs] = Graphs,
    ) -> None:
        """`vocab` tokens may be chosen: padding rows of the head never are. `captured` as in `Graphs`."""
        self._models = models
        target = models["target"]
        self._vocab = vocab
        self._state = state = VerifyState.create(vocab, VERIFY_ROWS, device)
        self._flags = SkipFlags(target.config.layers, device)
        self._verified = Scored.create(VERIFY_ROWS, target.config.vocab, device)
        self._drawn = Scored.create(VERIFY_ROWS, target.config.vocab, device)
        """The distributions that the drafted tokens were drawn from."""
        self._chosen = torch.zeros(VERIFY_ROWS + 1, device=device, dtype=torch.int32)
        self._tail = torch.zeros(ALIGNED, device=device, dtype=torch.int32)
        """The last two tokens of the text; a draft's first pass runs over both, so its cache never lags behind."""
        self._fed = torch.zeros_like(state.fed)
        self._token, self._slot = (torch.zeros(1, device=device, dtype=torch.int32) for _ in range(2))
        """What a draft pass runs over, and the slot of the cache it goes into."""
        self._sure = torch.zeros(VERIFY_ROWS, pin_memory=device.type == "cuda")
        """The drafted tokens' probabilities, for the host."""
        self._passed = [torch.cuda.Event(blocking=True) if device.type == "cuda" else None for _ in range(VERIFY_ROWS)]
        self._acceptance: Acceptance = "coupled"
        self._report = torch.zeros(state.result.numel() + state.fed.numel(), device=device, dtype=torch.int32)
        """The verdict and what was fed, for the host."""
        self._host_report = torch.zeros(self._report.shape, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._clock = Clock(device)
        self.graphs = graphs(device, [*state.tensors(), self._tail], captured)
        self.on_host: HostDrafts | None = None
        """Makes the drafts of a draft model on the host."""

    def begin(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> None:
        """A reply to `prompt` starts.

        Raises:
            ModelError: more end-of-text tokens than the kernels take.
        """
        self._prompt = len(prompt)
        self._state.set_sampling(sampling)
        self._state.begin(prompt, eos)
        self._place_tail(prompt)
        if self.on_host is not None:
            self.on_host.begin(sampling, prompt)

    def start(self, acceptance: Acceptance) -> None:
        self._clock.start()
        self._confidence: tuple[float, ...] = ()
        self._drafted = 0
        self._chain: Chain | None = None
        self._drew = False
        if acceptance != self._acceptance:
            self._state.set_acceptance(acceptance)
            self._acceptance = acceptance
        if self.on_host is not None:
            self.on_host.start("coupled")

    def chain(self, name: str, limit: int, one: Callable[[int], None], unsure: float) -> None:
        self._state.node.zero_()
        self._drew = True
        self._chain = Chain(name, limit, one, unsure)
        # Two passes now; whether there are more is seen when the first is done, once the host has nothing else to do.
        for _ in range(min(limit, 2)):
            self._run_pass(self._chain)

    def grow(self, name: str, limit: int, one: Callable[[int], None], least: float) -> None:
        self.chain(name, limit, one, least)

    def branch(self, role: Role, level: int) -> None:
        self.pick(role, level)

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = (), parents: Sequence[int] = ()) -> None:
        # Of a tree its first branch.
        first = next((i for i, parent in enumerate(parents) if parent != i), len(tokens))
        tokens, confidence = tokens[:first], confidence[:first]
        if tokens:
            fed = torch.tensor(tokens, dtype=torch.int32)
            self._state.fed[1 : len(tokens) + 1].copy_(fed, non_blocking=True)
        self._confidence = tuple(confidence)
        self._drafted = len(tokens)

    def leave_out(self, skip: Skip) -> None:
        self._flags.set(skip)

    def run(self, role: Role, node: int, skipping: bool = False) -> None:
        model, state, flags = self._models[role], self._state, self._flags if skipping else None
        if role == "draft" and node == 0:
            torch.sub(state.length, 1, out=self._slot)
            model.forward(self._tail, self._slot, 2, flags)
        else:
            torch.index_select(state.fed, 0, state.node, out=self._token)
            torch.add(state.length, state.node, out=self._slot)
            model.forward(self._token, self._slot, 1, flags)

    def pick(self, role: Role, node: int) -> None:
        model, state = self._models[role], self._state
        last = 1 if role == "draft" and node == 0 else 0
        process(model.logits(last, 1), state, 0, self._drawn, 1, min(self._vocab, model.config.vocab))
        choose(self._drawn, state, 0, 1, state.fed[1:])

    def verify(self) -> None:
        if self._chain is None:
            self._start_verify()

    def verdict(self) -> Stepped:
        if (chain := self._chain) is not None:
            while self._drafted < chain.limit and self._probability(self._drafted - 2) >= chain.unsure:
                self._run_pass(chain)
            self._start_verify()
        draft_ms, verify_ms = self._clock.wait()
        if chain is not None:
            self._confidence = tuple(self._sure[: self._drafted].tolist())
        report = self._host_report.tolist()
        accepted, tested, emitted = report[:3]
        tokens = tuple(report[3 : 3 + emitted])
        fed = report[self._state.result.numel() :]
        if self.on_host is not None:
            self.on_host.added(tokens, range(1, min(accepted, emitted) + 1))
        return Stepped(
            tokens=tokens,
            drafts=tuple(fed[1 : self._drafted + 1]),
            confidence=self._confidence,
            tested=tested,
            path=tuple(range(1, min(accepted, emitted) + 1)),
            draft_ms=draft_ms,
            verify_ms=verify_ms,
        )

    def place(self, text: list[int]) -> None:
        self._state.place(text, self._prompt)
        self._place_tail(text)
        if self.on_host is not None:
            self.on_host.place(text)

    def capture_verify(self) -> None:
        """Run every kind of verify pass once, on whatever is fed; `place` then sets the text back."""
        for rows in VERIFY_BUCKETS:
            for drew in (False, True):
                self._run_verify(rows, drew)

    def pretend(self) -> None:
        """Leave what kernels that are not run would leave: drafts that are sure, and of each step one token."""
        self._state.sure.fill_(1)
        self._state.result[2] = 1

    def memory(self) -> int:
        """Bytes held on the device beside the models."""
        held = [*vars(self._state).values(), *vars(self._verified).values(), *vars(self._drawn).values()]
        return sum(t.numel() * t.element_size() for t in held if isinstance(t, Tensor))

    def _run_pass(self, chain: Chain) -> None:
        """Draft one token more. Two graphs a family: later passes differ in the node alone, which the device counts."""
        first = min(self._drafted, 1)
        self.graphs.run((chain.name, first), partial(self._pass, chain.one, first))
        if (event := self._passed[self._drafted]) is not None:
            event.record()
        self._drafted += 1

    def _pass(self, one: Callable[[int], None], node: int) -> None:
        one(node)
        self._state.node.add_(1)
        self._sure.copy_(self._state.sure, non_blocking=True)

    def _start_verify(self) -> None:
        self._chain = None
        self._clock.drafted()
        self._state.drafted.fill_(self._drafted)
        self._run_verify(next(bucket for bucket in VERIFY_BUCKETS if bucket > self._drafted), self._drew)
        self._clock.verified()

    def _run_verify(self, rows: int, drew: bool) -> None:
        self.graphs.run(("verify", rows, drew), lambda: self._verify(rows, drew))

    def _probability(self, node: int) -> float:
        """Of the token that the pass over `node` picked; waits for that pass."""
        if (event := self._passed[node]) is not None:
            event.synchronize()
        return float(self._sure[node])

    def _place_tail(self, text: Sequence[int]) -> None:
        self._tail[:2].copy_(torch.tensor([text[-2] if len(text) > 1 else 0, text[-1]]))

    def _verify(self, rows: int, drew: bool) -> None:
        state = self._state
        state.node.zero_()
        self._fed.copy_(state.fed)
        target = self._models["target"]
        target.forward(state.fed, state.length, rows)
        process(target.logits(0, rows), state, 0, self._verified, rows, self._vocab)
        judge(self._verified, state, rows, self._chosen, self._drawn if drew else None)
        commit(self._chosen, state)
        # The last two of: the token that was pending, the tokens that were added.
        text = torch.cat((self._fed[:1], state.result[3:]))
        emitted = state.result[2:3]
        torch.index_select(text, 0, torch.cat((emitted - 1, emitted)), out=self._tail[:2])
        torch.cat((state.result, self._fed), out=self._report)
        self._host_report.copy_(self._report, non_blocking=True)


class DraftsOnHost(HostDrafts):
    """Drafts by a model on the host for a target on a device."""

    def __init__(self, models: Mapping[Role, CachedModel[Decoder]], vocab: int, device: DeviceExecutor) -> None:
        super().__init__(models, vocab)
        self._device = device
        device.on_host = self

    def chain(self, name: str, limit: int, one: Callable[[int], None], unsure: float) -> None:
        super().chain(name, limit, one, unsure)
        self._device.fill(self.draft.tokens, self.draft.confidence)

    def grow(self, name: str, limit: int, one: Callable[[int], None], least: float) -> None:
        super().grow(name, limit, one, least)
        self._device.fill(self.draft.tokens, self.draft.confidence, self.draft.parents)


assert VERIFY_ROWS == MAX_DRAFT_LENGTH + 1
