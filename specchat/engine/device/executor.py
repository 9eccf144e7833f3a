"""Step on a GPU: captured draft passes and verify pass; one copy to the host a step."""

from collections.abc import Mapping
from functools import partial

import torch

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Block, Chain, Copy, Proposal, Role, Then, Tree
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.device.beside import LoopsBeside, Picker
from specchat.engine.device.clock import Clock
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.drafting import CapturedDrafts
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.trees import DeviceTrees
from specchat.engine.device.verify import BUCKETS, Kind, Verifier
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.transfer import send
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.protocol.options import Acceptance
from specchat.engine.strategy import MAX_DRAFT_LENGTH


class DeviceExecutor:
    """Executor with the text's state on the device; the host's copy is one report behind while a step runs."""

    asynchronous, joins = True, False

    def __init__(
        self,
        models: Mapping[Role, DeviceDecoder],
        vocab: int,
        device: torch.device,
        captured: bool = True,
        graphs: type[Graphs] = Graphs,
    ) -> None:
        """Choose among `vocab` tokens, never padding rows of the head. `captured` as in `Graphs`."""
        target = models["target"]
        self._state = state = VerifyState.create(vocab, VERIFY_ROWS, device)
        self._drawn = Scored.create(VERIFY_ROWS, target.config.vocab, device)
        """Distributions that the draft tokens were sampled from."""
        self._verifier = Verifier(target, state, self._drawn, vocab, device)
        self._acceptance: Acceptance = "coupled"
        self._clocks = Clock(device), Clock(device)
        self._turn = 0
        """Index of the clock and report of the last step begun: the other's step may still be read."""
        self._trees = DeviceTrees(state, self._drawn)
        self._branched = False
        """True if the state describes a draft tree."""
        tail, recent = self._verifier.tail, self._verifier.recent
        self.graphs = graphs(device, [*state.tensors(), *self._trees.tensors(), tail, recent], captured)
        self.costs = StepCosts()
        self.policies = LengthPolicies(self.costs)
        self.drafts = CapturedDrafts(dict(models), vocab, state, self._drawn, tail, recent, self._trees, self.graphs)
        self.beside: dict[Role, LoopsBeside] = {}
        """Host loops, by the models that they draft with."""
        self._loops: list[LoopsBeside] = []
        """The different host loops of the reply."""
        self.pick_from = Picker(state, self._drawn, vocab, target.config.vocab, self.graphs)

    def begin(self, rules: ReplyRules, prompt: list[int]) -> None:
        """Start a reply to `prompt`.

        Raises:
            ModelError: more end-of-text tokens than the kernels allow.
        """
        # Other replies are the stepwise executor's.
        assert rules.constraint is None
        assert rules.top is None
        self._prompt, self._greedy = len(prompt) - rules.begun, rules.sampling.greedy
        self._state.set_sampling(rules.sampling)
        self._state.begin(prompt, rules.eos, self._prompt)
        self._verifier.place(prompt)
        self._loops = list({id(loops): loops for loops in self.beside.values()}.values())
        for loops in self._loops:
            loops.begin(rules, prompt)

    def supports(self, proposal: Proposal) -> bool:
        """Return True: all proposals run here."""
        del proposal
        return True

    def start(self, acceptance: Acceptance) -> None:
        self._clocks[self._turn].start()
        self._proposal: Proposal = Copy(strategy="plain")
        self._confidence: tuple[float, ...] = ()
        self._parents: tuple[int, ...] = ()
        self._drafted, self._drafting = 0, False
        self._kind: Kind = "chain"
        self.policies.start()
        if self._branched:
            self._state.set_tree(())
            self._branched = False
        if acceptance != self._acceptance:
            self._state.set_acceptance(acceptance)
            self._acceptance = acceptance
        for loops in self._loops:
            loops.start(acceptance)

    def verify(self, proposal: Proposal) -> None:
        self._proposal = proposal
        match proposal:
            case Copy():
                self._send(proposal)
            case Tree() if self.drafts.runs(proposal):
                self._drafting, self._kind, self._branched = True, "tree", True
                self.drafts.start(proposal, None)
            case Chain() if self.drafts.runs(proposal):
                self._kind = "sampled block" if self._acceptance == "block" and not self._greedy else "sampled chain"
                self._draft(proposal)
            case Tree() | Chain():
                made = self.beside[proposal.model].make(proposal).draft
                self._send(Copy(made.tokens, made.parents, confidence=made.confidence))
            case Then():
                raise ValueError("captured passes begin at the end of the text: nothing goes on after a copy")

    def outcome(self, follow: bool = False) -> StepOutcome:
        drafting = self._drafting
        if drafting:
            self._drafted = self.drafts.finish()
            self._start_verify()
        turn, clock = self._turn, self._clocks[self._turn]
        if follow:
            self._turn = 1 - turn
            self._clocks[self._turn].start()
            if drafting:
                assert isinstance(self._proposal, Chain)
                self._draft(self._proposal)
            else:
                self._start_verify()
        for loops in self._loops:
            loops.draft_ahead(clock.passed)
        draft_ms, verify_ms = clock.wait()
        report = self._verifier.report(turn)
        if drafting:
            self._confidence = self._verifier.confidence(turn, len(report.drafts))
            self._parents = report.parents if self._kind == "tree" else ()
        for loops in self._loops:
            loops.commit(report.tokens, report.path)
        outcome = StepOutcome(
            tokens=report.tokens,
            drafts=report.drafts,
            confidence=self._confidence,
            tested=report.tested,
            path=report.path,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            parents=self._parents,
            strategy=self._proposal.strategy,
            sources=(self._proposal.strategy,),
            likeliest=report.likeliest if self._kind == "tree" else (),
        )
        self.policies.observe(outcome)
        return outcome

    @property
    def timed(self) -> bool:
        """True if drafts may depend on timing, because the text is the same for every draft."""
        return self._acceptance == "coupled" or self._greedy

    def rewind(self, token_ids: list[int]) -> None:
        self._state.place(token_ids, self._prompt)
        self._verifier.place(token_ids)
        for loops in self._loops:
            loops.rewind(token_ids)

    def capture_verify(self) -> None:
        """Run every kind of verify pass once, on any input; `rewind` then restores the text."""
        for kind, buckets in BUCKETS.items():
            for rows in buckets:
                self._run_verify(rows, kind)

    def pretend(self) -> None:
        """Fake the output of kernels that are not run: certain drafts, and one token a step."""
        self._state.sure.fill_(1)
        self._state.result[2] = 1

    def memory(self) -> int:
        """Bytes held on the device besides the models."""
        own = sum(t.nbytes for t in (*self._state, *self._drawn))
        return own + self._verifier.memory() + self._trees.memory() + self.pick_from.memory()

    def _draft(self, chain: Chain) -> None:
        """Have a model draft a chain."""
        self._drafting = True
        self.drafts.start(chain, self.policies.begin(chain.strategy, self.timed, isinstance(chain, Block)))

    def _send(self, copy: Copy) -> None:
        """Have the target verify known tokens."""
        if copy.tokens:
            send(copy.tokens, self._state.fed[1 : len(copy.tokens) + 1])
        self._parents, self._confidence, self._drafted = tuple(copy.parents), tuple(copy.confidence), len(copy.tokens)
        # Chains carry no likeliest tokens.
        if copy.likeliest or any(parent != i for i, parent in enumerate(copy.parents)):
            self._state.set_tree(self._parents)
            self._kind, self._branched = "tree", True
        self._start_verify()

    def _start_verify(self) -> None:
        drafting, self._drafting = self._drafting, False
        if self._kind != "tree" or not drafting:
            self._state.drafted.fill_(self._drafted)
        self._clocks[self._turn].drafted()
        self._run_verify(next(rows for rows in BUCKETS[self._kind] if rows > self._drafted), self._kind)
        if drafting:
            self.drafts.kept()
        self._verifier.copy_report(self._turn, drafting)
        self._clocks[self._turn].verified()

    def _run_verify(self, rows: int, kind: Kind) -> None:
        self.graphs.run(("verify", rows, kind), partial(self._verifier.run, rows, kind))


assert VERIFY_ROWS == MAX_DRAFT_LENGTH + 1
