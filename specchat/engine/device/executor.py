"""Step on a GPU: captured draft passes and verify pass; one copy to the host a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Block, Chain, Copy, Proposal, Role, Then, Tree
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.device.beside import LoopsBeside, Picker
from specchat.engine.device.clock import Clocks
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


@dataclass
class StepOnDevice:
    """A step under way: its proposal, and the draft that the target verifies.

    Attributes:
        drafted: number of draft tokens.
        drafting: captured passes draft, and their tokens are on the device alone.
    """

    proposal: Proposal = field(default_factory=lambda: Copy(strategy="plain"))
    kind: Kind = "chain"
    confidence: tuple[float, ...] = ()
    parents: tuple[int, ...] = ()
    drafted: int = 0
    drafting: bool = False


@dataclass
class ReplyOnDevice:
    """Rules of a reply, as the device has them.

    Attributes:
        prompt: length of the prompt.
        loops: its different host loops.
    """

    prompt: int = 0
    greedy: bool = False
    loops: Sequence[LoopsBeside] = ()


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
        self._reply, self._step = ReplyOnDevice(), StepOnDevice()
        self._clocks = Clocks(device)
        trees = DeviceTrees(state, self._drawn)
        text = self._verifier.text
        self.graphs = graphs(device, [*state.tensors(), *trees.tensors(), *text], captured)
        self.policies = LengthPolicies(StepCosts())
        self.drafts = CapturedDrafts(dict(models), state, self._drawn, text, trees, self.graphs)
        self.beside: dict[Role, LoopsBeside] = {}
        """Host loops, by the models that they draft with."""
        self.pick_from = Picker(state, self._drawn, vocab, target.config.vocab, self.graphs)

    def begin(self, rules: ReplyRules, prompt: list[int]) -> None:
        """Start a reply to `prompt`.

        Raises:
            ModelError: more end-of-text tokens than the kernels allow.
        """
        # Other replies are the stepwise executor's.
        assert rules.constraint is None
        assert rules.top is None
        loops = list({id(one): one for one in self.beside.values()}.values())
        self._reply = ReplyOnDevice(len(prompt) - rules.begun, rules.sampling.greedy, loops)
        self._state.set_sampling(rules.sampling)
        self._state.begin(prompt, rules.eos, self._reply.prompt)
        self._verifier.place(prompt)
        for one in loops:
            one.begin(rules, prompt)

    def supports(self, proposal: Proposal) -> bool:
        """Return True: all proposals run here."""
        del proposal
        return True

    def start(self, acceptance: Acceptance) -> None:
        self._clocks.last.start()
        if self._step.kind == "tree":
            self._state.set_tree(())
        self._step = StepOnDevice()
        self.policies.start()
        if acceptance != self._acceptance:
            self._state.set_acceptance(acceptance)
            self._acceptance = acceptance
        for loops in self._reply.loops:
            loops.start(acceptance)

    def verify(self, proposal: Proposal) -> None:
        step = self._step
        step.proposal = proposal
        match proposal:
            case Copy():
                self._send(proposal)
            case Tree() if self.drafts.runs(proposal):
                step.drafting, step.kind = True, "tree"
                self.drafts.start(proposal, None)
            case Chain() if self.drafts.runs(proposal):
                blocks = self._acceptance == "block" and not self._reply.greedy
                step.kind = "sampled block" if blocks else "sampled chain"
                self._draft(proposal)
            case Tree() | Chain():
                draft = self.beside[proposal.model].make(proposal).draft
                self._send(Copy(draft.tokens, draft.parents, confidence=draft.confidence))
            case Then():
                raise ValueError("captured passes begin at the end of the text: nothing goes on after a copy")

    def outcome(self, follow: bool = False) -> StepOutcome:
        step = self._step
        drafting = step.drafting
        if drafting:
            step.drafted = self.drafts.finish()
            self._start_verify()
        clocks = self._clocks
        turn, clock = clocks.turn, clocks.last
        if follow:
            clocks.swap()
            clocks.last.start()
            if drafting:
                assert isinstance(step.proposal, Chain)
                self._draft(step.proposal)
            else:
                self._start_verify()
        for loops in self._reply.loops:
            loops.draft_ahead(clock.passed)
        draft_ms, verify_ms = clock.wait()
        report = self._verifier.report(turn)
        if drafting:
            step.confidence = self._verifier.confidence(turn, len(report.drafts))
            step.parents = report.parents if step.kind == "tree" else ()
        for loops in self._reply.loops:
            loops.commit(report.tokens, report.path)
        outcome = StepOutcome(
            tokens=report.tokens,
            drafts=report.drafts,
            confidence=step.confidence,
            tested=report.tested,
            path=report.path,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            parents=step.parents,
            strategy=step.proposal.strategy,
            sources=(step.proposal.strategy,),
            likeliest=report.likeliest if step.kind == "tree" else (),
        )
        self.policies.observe(outcome)
        return outcome

    @property
    def costs(self) -> StepCosts:
        """Measured costs of steps."""
        return self.policies.costs

    @property
    def timed(self) -> bool:
        """True if drafts may depend on timing, because the text is the same for every draft."""
        return self._acceptance == "coupled" or self._reply.greedy

    def rewind(self, token_ids: list[int]) -> None:
        self._state.place(token_ids, self._reply.prompt)
        self._verifier.place(token_ids)
        for loops in self._reply.loops:
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
        return own + self._verifier.memory() + self.drafts.trees.memory() + self.pick_from.memory()

    def _draft(self, chain: Chain) -> None:
        """Have a model draft a chain."""
        self._step.drafting = True
        self.drafts.start(chain, self.policies.begin(chain.strategy, self.timed, isinstance(chain, Block)))

    def _send(self, copy: Copy) -> None:
        """Have the target verify known tokens."""
        step = self._step
        if copy.tokens:
            send(copy.tokens, self._state.fed[1 : len(copy.tokens) + 1])
        step.parents, step.confidence, step.drafted = tuple(copy.parents), tuple(copy.confidence), len(copy.tokens)
        # Chains carry no likeliest tokens.
        if copy.likeliest or any(parent != i for i, parent in enumerate(copy.parents)):
            self._state.set_tree(step.parents)
            step.kind = "tree"
        self._start_verify()

    def _start_verify(self) -> None:
        step, clock = self._step, self._clocks.last
        drafting, step.drafting = step.drafting, False
        if step.kind != "tree" or not drafting:
            self._state.drafted.fill_(step.drafted)
        clock.drafted()
        self._run_verify(next(rows for rows in BUCKETS[step.kind] if rows > step.drafted), step.kind)
        if drafting:
            self.drafts.kept()
        self._verifier.copy_report(self._clocks.turn, drafting)
        clock.verified()

    def _run_verify(self, rows: int, kind: Kind) -> None:
        """Run a pass, which chains share however they are judged, and the verdict of this kind."""
        branching = kind == "tree"
        self.graphs.run(("verify", rows, branching), partial(self._verifier.forward, rows, branching))
        self.graphs.run(("judge", rows, kind), partial(self._verifier.judge, rows, kind))


assert VERIFY_ROWS == MAX_DRAFT_LENGTH + 1
