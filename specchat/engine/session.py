"""A loaded pair that answers chats: messages to tokens, steps to events, prefix reuse from turn to turn."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from time import perf_counter

from specchat.engine.api import (
    Cancel,
    Changed,
    Count,
    Counted,
    Drafted,
    Event,
    Finished,
    FinishReason,
    Generate,
    Started,
    Step,
)
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.control import UNCONTROLLED, Control
from specchat.engine.cross_chat import CrossChatIndexer
from specchat.engine.decoding.meter import Meter
from specchat.engine.decoding.step import Decoding, longest
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.decoding.yardstick import Yardstick
from specchat.engine.drafters.fences import backquotes
from specchat.engine.errors import ContextError, EngineError
from specchat.engine.learnt import Learnt
from specchat.engine.measure import REPLY_TOKENS, check_costs, draft_costs, plain_speed, rehearse, reply_plainly
from specchat.engine.model.habits import habits
from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.options import Sampling, Speculation
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.prompts import Prompts, written
from specchat.engine.read_ahead import ReadAhead, reader
from specchat.engine.reply_text import ReplyText
from specchat.engine.runners.runner import Runner
from specchat.engine.step_tree import PENDING
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from specchat.engine.tally import Tally


class Session:
    """One pair, one chat at a time. Everything runs in the caller's thread."""

    def __init__(self, pair: PairSpec, tokenizer: Tokenizer, runner: Runner, started: float, note: str = "") -> None:
        """Measure and describe a loaded pair; `started` is the start of loading by `perf_counter`."""
        self.tokenizer = tokenizer
        self.runner = runner
        self.target = runner.target
        self.drafters = runner.drafters
        self.cross_chat = CrossChatIndexer(runner.earlier, tokenizer.encode)
        runner.fences.know(backquotes(tokenizer.vocabulary))
        self.eos = runner.eos | tokenizer.eos
        self.info = PairInfo(
            id=pair.id,
            name=pair.name,
            device=runner.device,
            context=runner.context,
            vocab_size=runner.vocab,
            target_parameters=runner.target_parameters,
            draft_parameters=runner.draft_parameters,
            memory=runner.memory(),
            strategies=runner.statuses,
            plain_tokens_per_second=0.0,
            draft_cost=None,
            load_seconds=0.0,
            exactness=runner.exactness,
            note=note,
            gpu=runner.gpu,
            warning=_without_template(tokenizer),
            template=habits(tokenizer),
            system_role=tokenizer.format.system,
            template_choices=tokenizer.format.choices,
            draft_context=runner.draft_context,
        )
        self._prompts = Prompts(tokenizer, runner.context, runner.vocab)
        self._yardstick = Yardstick(runner.executor.costs)
        self._learnt = Learnt.of(pair, runner.device)
        self._learnt.restore(self.drafters.get("auto"))
        self._measure()
        self.info = replace(self.info, load_seconds=perf_counter() - started)

    def warn(self, *sentences: str) -> None:
        """Add settings that do not take effect to the pair's info."""
        self.info = replace(self.info, warning=" ".join(filter(None, (self.info.warning, *sentences))))

    def _measure(self) -> None:
        """Measure plain speed by replies for the yardstick, or by bare steps if a reply is too slow or too short.

        Bare steps run first: a GPU compiles and captures their launches at the first use.
        """
        bare, executor = plain_speed(self.runner), self.runner.executor
        checks, drafts = check_costs(self.runner), draft_costs(self.runner)
        if "draft" in drafts and 1 in checks:
            length, ms = max(drafts["draft"].items())
            self.info = replace(self.info, draft_cost=ms / length / checks[1])
        with suppress(EngineError):
            rehearse(self.generate, self.drafters.get("auto"))
            # A model's first steps are several times slower than later ones.
            executor.costs.forget()
            executor.costs.expect(checks, drafts)
            executor.policies.forget()
            self.info = replace(self.info, plain_tokens_per_second=0.0, plain_sampled_tokens_per_second=0.0)
            for temperature in (0.0, DRAWN):
                # Each reply becomes the yardstick, without a correction for load: `_plain_seen`.
                if not reply_plainly(self.generate, temperature):
                    break
            plain_slow = self._yardstick.slowed
            rehearse(self.generate, self.drafters.get("auto"))
            self._settle(plain_slow, self._yardstick.slowed)
        self.forget()
        if not self.info.plain_tokens_per_second:
            self._plain(False, bare)

    def _settle(self, plain: float, drafted: float) -> None:
        """Take the current load factors, of plain and of drafted replies, as the normal ones.

        Bare steps were faster, since they have the processor's caches for themselves.
        """
        costs, info = self.runner.executor.costs, self.info
        costs.settle(plain, drafted)
        self._yardstick = Yardstick(costs)
        self._plain(False, info.plain_tokens_per_second / plain)
        self._plain(True, info.plain_sampled_tokens_per_second / plain)

    def _plain(self, drawn: bool, speed: float) -> None:
        """Store the plain speed, in tokens per second, of sampled (`drawn`) or greedy replies."""
        if drawn:
            self.info = replace(self.info, plain_sampled_tokens_per_second=speed)
        else:
            self.info = replace(self.info, plain_tokens_per_second=speed)

    def count(self, request: Count) -> Counted:
        """Count a chat's prompt tokens and dropped messages."""
        prompt = self._prompts.prompt(request.messages, request.limits, request.prefill, template=request.template)
        return Counted(request.id, len(prompt.tokens), self.info.context, prompt.dropped)

    def generate(self, request: Generate, control: Control = UNCONTROLLED) -> Iterator[Event]:
        """Answer a chat: Started, then Step and Changed events, then Finished.

        Closing the iterator stops the reply; the caches then hold what was committed.

        Raises:
            ContextError: the chat does not fit the context.
            EngineError: "request": an unknown or unavailable strategy.
        """
        self._check(request.speculation)
        started = perf_counter()
        made = self._prompts.prompt(request.messages, request.limits, request.prefill, request.begun, request.template)
        prompt, dropped, text = made.tokens, made.dropped, self._prompts.text(request, made)
        if not prompt:
            raise EngineError("request", "There is nothing to answer: the chat is empty.")
        self.tokenizer.check(prompt)
        if len(prompt) >= self.info.context:
            what = f"Even without {dropped} of its messages this chat" if dropped else "This chat"
            raise ContextError(
                f"{what} takes {len(prompt):,} tokens and {self.info.name} holds {self.info.context:,}. "
                "Shorten the message or start a new chat."
            )
        self.runner.earlier.hidden = request.cold
        if request.cold:
            self.forget()
        reused = self.target.rewind(prompt)
        speculation, cancelled = request.speculation, False
        changes: list[Changed] = []
        for drafter in self.drafters.values():
            drafter.begin(prompt, self.eos)
        room, most = self.info.context - len(prompt), request.limits.max_tokens
        limit = longest(self.runner.executor, _length(speculation), room, most)
        reads = reader(self.drafters, speculation.strategy, prompt, limit, self.runner.spare)
        with ReadAhead(reads, prompt, self.runner.spare) as ahead:
            # After a change the new drafter reads what it needs.
            while not cancelled and (self.target.fill(prompt) or (not changes and ahead.fill())):
                cancelled, speculation, more = self._listen(request.id, control, speculation, 0)
                changes += more
        yield Started(
            request.id,
            len(prompt),
            reused,
            request.sampling.seed,
            request.speculation,
            request.prefill,
            dropped,
            1e3 * (perf_counter() - started),
        )
        if cancelled:
            stats = Meter(len(prompt), reused).stats()
            yield Finished.of(request.id, "cancelled", written(request, text), (), stats)
            return
        yield from changes
        yield from self._reply(replace(request, speculation=speculation), text, prompt, reused, started, control)
        if isinstance(auto := self.drafters.get("auto"), AutoDrafter):
            auto.think()
            self._learnt.keep(auto)

    def forget(self) -> None:
        """Empty every cache and reset the drafters; the cross-chat n-gram cache stays."""
        self.target.keep(0)
        for drafter in self.drafters.values():
            drafter.forget()

    def _reply(
        self, request: Generate, text: ReplyText, prompt: list[int], reused: int, started: float, control: Control
    ) -> Iterator[Event]:
        usual = self.info.plain_speed(request.sampling)
        self._yardstick.begin(1e3 / usual if usual else 0.0)
        decoding = self.runner.reply(request.sampling, prompt, self.eos, self._yardstick.due)
        try:
            yield from self._steps(request, decoding, text, prompt, reused, started, control)
        finally:
            decoding.close()
            self.runner.earlier.add(request.chat, decoding.committed[len(prompt) :])

    def _steps(
        self,
        request: Generate,
        decoding: Decoding,
        text: ReplyText,
        prompt: list[int],
        reused: int,
        started: float,
        control: Control,
    ) -> Iterator[Event]:
        meter = Meter(len(prompt), reused)
        speculation = request.speculation
        most = request.limits.max_tokens
        tokens: list[int] = []
        reason: FinishReason | None = "length" if most == 0 else None
        begun, ran = perf_counter(), self.runner.executor.costs.clock()
        while reason is None:
            drafter = self.drafters[speculation.strategy]
            left = None if most is None else most - len(tokens)
            stepped = decoding.step(drafter, _length(speculation), speculation.acceptance, left)
            turned = text.turned
            taken, reason = self._take(stepped.tokens[:left], stepped, text)
            tokens += stepped.tokens[:taken]
            if reason is None and most is not None and len(tokens) >= most:
                reason = "length"
            elif reason is None and decoding.room == 0:
                reason = "context"
            cancelled, speculation, changes = self._listen(request.id, control, speculation, len(tokens))
            if reason is None and cancelled:
                reason = "cancelled"
            now = perf_counter()
            meter.ttft_ms = meter.ttft_ms or 1e3 * (now - started)
            ran_ms = 1e3 * (self.runner.executor.costs.clock() - ran)
            other_ms, waited_ms = meter.other_ms(stepped, 1e3 * (now - begun), ran_ms)
            measured = self._yardstick.add(stepped.strategy, stepped)
            step = Step(
                id=request.id,
                pieces=text.take() if reason is None else text.finish(complete=reason == "stop"),
                drafted=stepped.drafted,
                tested=stepped.tested,
                accepted=min(stepped.accepted, taken),
                emitted=taken,
                draft_ms=stepped.draft_ms,
                verify_ms=stepped.verify_ms,
                other_ms=other_ms,
                context_used=len(prompt) + len(tokens),
                strategy=stepped.strategy,
                drafts=self._drafts(stepped),
                again=stepped.again,
                usual_ms=measured.usual_ms,
                plain_ms=measured.plain_ms * taken,
                plain_error=measured.plain_error,
                turned=text.turned != turned,
                waited_ms=waited_ms,
            )
            meter.tally.add(step)
            yield step
            if reason is None:
                yield from changes
        if meter.tally.steps and not meter.tally.drafted:
            self._plain_seen(meter.tally, request.sampling)
        stats = replace(meter.stats(), num_repeated_tokens=self._repeated(meter.tally, tokens))
        yield Finished.of(request.id, reason, written(request, text), tuple(tokens), stats)

    def _repeated(self, tally: Tally, tokens: Sequence[int]) -> int:
        """Number of first `tokens` that equal an earlier reply's, if most were copied; 0 if there are few."""
        if 2 * tally.copied < len(tokens):
            return 0
        repeated = self.runner.earlier.repeated(tokens)
        return repeated if 2 * repeated >= len(tokens) else 0

    def _drafts(self, stepped: Stepped) -> tuple[Drafted, ...]:
        """Drafts with the accepted ones first; in a tree each names its parent."""
        drafts = [
            Drafted(self.tokenizer.text_of(token), probability, mark=token in self.tokenizer.hidden)
            for token, probability in zip_longest(stepped.drafts, stepped.confidence)
        ]
        if not stepped.parents:
            return tuple(drafts)
        others = [node for node in range(1, len(drafts) + 1) if node not in stepped.path]
        order = [*stepped.path, *others]
        place = {node: number for number, node in enumerate([0, *order], PENDING)}
        return tuple(replace(drafts[node - 1], parent=place[stepped.parents[node - 1]]) for node in order)

    def _take(self, tokens: Sequence[int], stepped: Stepped, text: ReplyText) -> tuple[int, FinishReason | None]:
        """Pass on a step's `tokens` until the reply ends; returns their number, and "stop" at its end."""
        for i, token in enumerate(tokens):
            if token in self.eos or text.push(token, source(stepped, i)):
                return i + 1, "stop"
        return len(tokens), None

    def _listen(
        self, reply: int, control: Control, speculation: Speculation, tokens: int
    ) -> tuple[bool, Speculation, list[Changed]]:
        """Read control messages: True if cancelled, the current speculation, and events to send."""
        changes: list[Changed] = []
        while (message := control.poll()) is not None:
            if isinstance(message, Cancel):
                return True, speculation, changes
            if message.speculation.strategy in self.drafters:
                speculation = message.speculation
            changes.append(Changed(reply, speculation, tokens))
        return False, speculation, changes

    def _check(self, speculation: Speculation) -> None:
        status = next((s for s in self.info.strategies if s.name == speculation.strategy), None)
        if status is None:
            known = ", ".join(s.name for s in self.info.strategies)
            raise EngineError("request", f"There is no strategy {speculation.strategy!r}; there are {known}.")
        if not status.available:
            raise EngineError(
                "request", f"Strategy {status.name!r} cannot be used with {self.info.name}: {status.reason}."
            )

    def _plain_seen(self, tally: Tally, sampling: Sampling) -> None:
        """Update the yardstick from a plain reply."""
        if tally.tokens >= REPLY_TOKENS:
            info, seen = self.info, self._yardstick.usual_speed
            known = info.plain_tokens_per_second if sampling.greedy else info.plain_sampled_tokens_per_second
            self._plain(not sampling.greedy, known + PLAIN_WEIGHT * (seen - known) if known else seen)


DRAWN = 0.7
"""The temperature at which plain speed is measured where tokens are drawn."""
PLAIN_WEIGHT = 0.5
"""Weight of one plain reply in the measured plain speed."""


def _without_template(tokenizer: Tokenizer) -> str:
    """A sentence if the model has no chat template; else ""."""
    reason = tokenizer.source.unsupported
    return f"{reason[:1].upper()}{reason[1:]}: the model goes on with your text as it stands." if reason else ""


def _length(speculation: Speculation) -> int:
    """Largest number of draft tokens."""
    return min(speculation.draft_length, MAX_DRAFT_LENGTH)


def source(stepped: Stepped, index: int) -> str:
    """Source of token `index` of a step: a strategy, "target" for its correction, "bonus" or "plain"."""
    if index < stepped.accepted:
        return stepped.sources[index >= stepped.switch if stepped.switch else 0]
    if stepped.drafted == 0:
        return "plain"
    return "bonus" if stepped.tested == stepped.accepted else "target"
