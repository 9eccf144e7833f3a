"""A step on a GPU: draft passes and the verify pass with its verdict, captured; one copy to the host a step."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import WIDTH, Copy, One, Role
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.decoding.stop import Stops
from specchat.engine.device.buffers import VERIFY_ROWS
from specchat.engine.device.clock import Clock
from specchat.engine.device.decoder import DeviceDecoder, SkipFlags
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.handed import HandedDrafts
from specchat.engine.device.head_chain import ChainHead, HeadChain
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.passes import Passes
from specchat.engine.device.picker import Picker
from specchat.engine.device.trees import DeviceTrees
from specchat.engine.device.verify import BUCKETS, Kind, Verifier
from specchat.engine.kernels.choose import choose
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.transfer import send
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.model.decoder import Skip
from specchat.engine.options import Acceptance, Sampling
from specchat.engine.strategies import MAX_DRAFT_LENGTH


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
        self._vocab, self._device = vocab, device
        self._state = state = VerifyState.create(vocab, VERIFY_ROWS, device)
        self._flags = SkipFlags(target.config.layers, device)
        self._drawn = Scored.create(VERIFY_ROWS, target.config.vocab, device)
        """The distributions that the drafted tokens were drawn from."""
        self._verifier = Verifier(target, state, self._drawn, vocab, device)
        self._token, self._slot = (torch.zeros(1, device=device, dtype=torch.int32) for _ in range(2))
        """What a draft pass runs over, and the slot of the cache it goes into."""
        self._sure = torch.zeros(VERIFY_ROWS, pin_memory=device.type == "cuda")
        """The drafted tokens' probabilities, or the largest value of each level of a tree, for the host."""
        self._passed = [torch.cuda.Event(blocking=True) if device.type == "cuda" else None for _ in range(VERIFY_ROWS)]
        self._acceptance: Acceptance = "coupled"
        self._clocks = Clock(device), Clock(device)
        self._turn = 0
        """Which of two clocks and reports is that of the last step begun: one is done while the next runs."""
        self._trees = DeviceTrees(state, self._drawn)
        self._branched = False
        """Whether the state says that the step drafts a tree."""
        self.graphs = graphs(device, [*state.tensors(), *self._trees.tensors(), self._verifier.tail], captured)
        self.costs = StepCosts()
        self.stops = Stops(self.costs)
        self.ends: Collection[int] = ()
        self.handed: list[HandedDrafts] = []
        """What makes drafts as the host asks for them."""
        self._heads: dict[Role, HeadChain] = {}
        self.pick_from = Picker(state, self._drawn, vocab, target.config.vocab, self.graphs)

    def add_head(self, role: Role, head: ChainHead, target: DeviceModel) -> None:
        """Let chains be drafted by a head of `target`."""
        self._heads[role] = HeadChain(head, target, self._state, self._verifier.tail)

    def begin(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> None:
        """A reply to `prompt` starts.

        Raises:
            ModelError: more end-of-text tokens than the kernels take.
        """
        self._prompt = len(prompt)
        self._greedy, self.ends = sampling.greedy, frozenset(eos)
        self._state.set_sampling(sampling)
        self._state.begin(prompt, eos)
        self._verifier.place(prompt)
        for drafts in self.handed:
            drafts.begin(sampling, prompt, eos)

    def start(self, acceptance: Acceptance) -> None:
        self._clocks[self._turn].start()
        self._confidence: tuple[float, ...] = ()
        self._drafted = self._done = 0
        self._passes: Passes | None = None
        self.stops.start()
        self._kind: Kind = "chain"
        self._parents: tuple[int, ...] = ()
        if self._branched:
            self._state.set_tree(())
            self._branched = False
        if acceptance != self._acceptance:
            self._state.set_acceptance(acceptance)
            self._acceptance = acceptance
        for drafts in self.handed:
            drafts.start(acceptance)

    def chain(self, name: str, limit: int, one: Callable[[int], None], at_once: bool = False) -> None:
        self._kind = "sampled block" if self._acceptance == "block" and not self._greedy else "sampled chain"
        self._start_passes(Passes(name, limit, one, self.stops.begin(name, self.timed, at_once)))

    def follow(self, copy: Copy) -> None:
        pass

    def grow(self, name: str, limit: int, one: One, least: float, levels: int = MAX_DRAFT_LENGTH) -> None:
        assert levels >= limit  # of fewer levels than nodes there are no trees here
        self._kind = "tree"
        self._branched = True
        self._trees.start(limit, least)
        self._start_passes(Passes(name, limit, one, None, least))

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = (), parents: Sequence[int] = ()) -> None:
        if tokens:
            send(tokens, self._state.fed[1 : len(tokens) + 1])
        self._parents, self._confidence, self._drafted = tuple(parents), tuple(confidence), len(tokens)
        if any(parent != i for i, parent in enumerate(parents)):
            self._check_tree()

    def want_likeliest(self) -> None:
        self._check_tree()  # of a chain it is not told

    def _check_tree(self) -> None:
        self._state.set_tree(self._parents)
        self._kind, self._branched = "tree", True

    def leave_out(self, skip: Skip) -> None:
        self._flags.set(skip)

    def run(self, role: Role, node: int, skipping: bool = False) -> None:
        if (head := self._heads.get(role)) is not None:
            head.run(node)
            return
        model, state, flags = self._models[role], self._state, self._flags if skipping else None
        if node and self._passes is not None and self._passes.tree:
            self._trees.run(model, flags)
        elif role == "draft" and node == 0:
            # Over the last two tokens of the text, so that a draft's cache never lags behind.
            torch.sub(state.length, 1, out=self._slot)
            model.forward(self._verifier.tail, self._slot, 2, flags)
        else:
            torch.index_select(state.fed, 0, state.node, out=self._token)
            torch.add(state.length, state.node, out=self._slot)
            model.forward(self._token, self._slot, 1, flags)

    def pick(self, role: Role, node: int) -> None:
        process(self._logits(role, node, 1), self._state, 0, self._drawn, 1, self._columns(role))
        choose(self._drawn, self._state, 0, 1, self._state.fed[1:])

    def branch(self, role: Role, level: int) -> None:
        rows = WIDTH if level else 1
        self._trees.branch(self._logits(role, level, rows), rows, self._columns(role))

    def verify(self) -> None:
        if self._passes is None:
            self._start_verify()

    def verdict(self, follow: bool = False) -> Stepped:
        if (passes := self._passes) is not None:
            while self._done < passes.limit and not passes.ends(self._surest(self._done - 2)):
                self._run_pass(passes)
            self._start_verify()
        turn, clock = self._turn, self._clocks[self._turn]
        if follow:
            self._turn = 1 - turn
            self._clocks[self._turn].start()
            self._start_verify()
        for drafts in self.handed:
            drafts.go_on(clock.passed)
        draft_ms, verify_ms = clock.wait()
        report = self._verifier.report(turn)
        if passes is not None:
            self._confidence = tuple(self._sure[: len(report.drafts)].tolist())
            self._parents = report.parents if passes.tree else ()
        for drafts in self.handed:
            drafts.added(report.tokens, report.path)
        stepped = Stepped(
            tokens=report.tokens,
            drafts=report.drafts,
            confidence=self._confidence,
            tested=report.tested,
            path=report.path,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            parents=self._parents,
            likeliest=report.likeliest if self._kind == "tree" else (),
        )
        self.stops.observe(stepped)
        return stepped

    @property
    def timed(self) -> bool:
        """Whether drafts may depend on how long things take: the text is the same whatever is drafted."""
        return self._acceptance == "coupled" or self._greedy

    def place(self, text: list[int]) -> None:
        self._state.place(text, self._prompt)
        self._verifier.place(text)
        for drafts in self.handed:
            drafts.place(text)

    def capture_verify(self) -> None:
        """Run every kind of verify pass once, on whatever is fed; `place` then sets the text back."""
        for kind, buckets in BUCKETS.items():
            for rows in buckets:
                self._run_verify(rows, kind)

    def pretend(self) -> None:
        """Leave what kernels that are not run would leave: drafts that are sure, and of each step one token."""
        self._state.sure.fill_(1)
        self._state.result[2] = 1

    def memory(self) -> int:
        """Bytes held on the device beside the models."""
        held = [*vars(self._state).values(), *vars(self._drawn).values()]
        own = sum(t.numel() * t.element_size() for t in held if isinstance(t, Tensor))
        return own + self._verifier.memory() + self._trees.memory() + self.pick_from.memory()

    def _start_passes(self, passes: Passes) -> None:
        self._state.node.zero_()
        self._passes = passes
        # Two passes now; whether there are more is seen when the first is done, once the host has nothing else to do.
        for _ in range(min(passes.limit, 2)):
            self._run_pass(passes)

    def _run_pass(self, passes: Passes) -> None:
        """Draft a token or level more. Two graphs a family: later passes differ in what the device counts alone."""
        first = min(self._done, 1)
        self.graphs.run((passes.name, first), partial(self._pass, passes, first))
        if (event := self._passed[self._done]) is not None:
            event.record(torch.cuda.current_stream(self._device))
        self._done += 1
        once, later = passes.found
        self._drafted = min(passes.limit, once + later * (self._done - 1))

    def _pass(self, passes: Passes, node: int) -> None:
        if passes.tree and node == 0:
            self._trees.begin()
        passes.one(node)
        if passes.tree:
            self._sure[:MAX_DRAFT_LENGTH].copy_(self._trees.values, non_blocking=True)
        else:
            self._state.node.add_(1)
            self._sure.copy_(self._state.sure, non_blocking=True)

    def _start_verify(self) -> None:
        grown = self._passes is not None and self._passes.tree
        self._passes = None
        if grown:
            self.graphs.eagerly(self._trees.settle)
            self._sure.copy_(self._state.sure, non_blocking=True)
        else:
            self._state.drafted.fill_(self._drafted)
        self._clocks[self._turn].drafted()
        self._run_verify(next(rows for rows in BUCKETS[self._kind] if rows > self._drafted), self._kind)
        if grown and (model := self._models.get("draft")) is not None:
            self.graphs.eagerly(partial(self._trees.keep, model))
        self._verifier.tell(self._turn)
        self._clocks[self._turn].verified()

    def _run_verify(self, rows: int, kind: Kind) -> None:
        self.graphs.run(("verify", rows, kind), partial(self._verifier.run, rows, kind))

    def _surest(self, done: int) -> float:
        """What the host is told of the pass after so many others; waits for it."""
        if (event := self._passed[done]) is not None:
            event.synchronize()
        return float(self._sure[done])

    def _logits(self, role: Role, node: int, rows: int) -> Tensor:
        """Of the last rows that `run` went over."""
        if (head := self._heads.get(role)) is not None:
            return head.logits()
        return self._models[role].logits(1 if role == "draft" and node == 0 else 0, rows)

    def _columns(self, role: Role) -> int:
        head = self._heads.get(role)
        return min(self._vocab, self._models[role].config.vocab if head is None else head.vocab)


assert VERIFY_ROWS == MAX_DRAFT_LENGTH + 1
