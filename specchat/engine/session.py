"""A loaded pair that answers chats: messages to tokens, steps to events, prefix reuse from turn to turn."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from time import perf_counter

from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.bandit.learnt import Learnt
from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.step import draft_limit
from specchat.engine.drafters.parts import backquotes
from specchat.engine.errors import EngineError
from specchat.engine.grammar.compiler import Grammars
from specchat.engine.pictures.blind import Blind
from specchat.engine.prefixes.bounds import bounds, identity
from specchat.engine.prefixes.on_disk import NOBODY, UNKNOWN
from specchat.engine.prefixes.shelf import Shelf
from specchat.engine.protocol.events import Changed, Counted, Event, Finished, PromptProgress, Started
from specchat.engine.protocol.options import Picture
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.picture_ids import of_text
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.reply.control import UNCONTROLLED, Control
from specchat.engine.reply.cross_chat import CrossChatIndexer
from specchat.engine.reply.holder import Holder
from specchat.engine.reply.measure import (
    FEW_STEPS,
    REPLY_TOKENS,
    check_costs,
    draft_costs,
    has_time,
    in_turn,
    plain_speed,
    read_prompt,
    rehearse,
)
from specchat.engine.reply.plain_speed import PlainSpeed
from specchat.engine.reply.prompts import Prompts
from specchat.engine.reply.read_ahead import ReadAhead, reader
from specchat.engine.reply.refusals import refuse_length, refuse_strategy, too_long
from specchat.engine.reply.reply import ReplyInProgress, TokenRules, longest_draft
from specchat.engine.reply.scoring import ScoringReader
from specchat.engine.runners.description import described
from specchat.engine.runners.runner import Runner
from specchat.engine.text.tokenizer import Tokenizer

PART_S = 0.25
"""Seconds of reading a prompt after which other replies may have their turn."""


class Session:
    """One pair, whose replies may take turns between their events. Everything runs in the caller's thread."""

    def __init__(
        self,
        pair: PairSpec,
        tokenizer: Tokenizer,
        runner: Runner,
        started: float,
        note: str = "",
        album: Blind | None = None,
    ) -> None:
        """Measure and describe a loaded pair; `started` is the start of loading by `perf_counter`.

        `album` has the pictures of a target that reads them.
        """
        self.tokenizer = tokenizer
        self.runner = runner
        self.cross_chat = CrossChatIndexer(runner.earlier, tokenizer.encode)
        runner.fences.know(backquotes(tokenizer.vocabulary))
        self.eos = runner.eos | tokenizer.eos
        of_shelf = identity(pair, runner.device, runner.place, runner.exactness, runner.long_factors)
        self.shelf = Shelf(limits := bounds(), of_shelf)
        for role, cached in runner.caches.items():
            self.shelf.add(role, cached)
        self.album = self.target.pictures = album or Blind(f"{pair.name} reads text alone here")
        self.info = replace(described(pair, runner, tokenizer, limits, note), sees=self.album.sees)
        self._prompts = Prompts(tokenizer, runner.context, runner.vocab, self.album, self.shelf.tails)
        self.holder = Holder(runner, self.shelf.lend, self._turn_to)
        self._grammars = Grammars(tokenizer)
        self._speed = PlainSpeed(runner.executor.costs)
        self._learnt = Learnt.of(pair, runner.device)
        self._learnt.restore(self.drafters.get("auto"))
        self._measure()
        self.info = replace(self.info, load=replace(self.info.load, seconds=perf_counter() - started))

    @property
    def target(self) -> CachedModel[Decoder]:
        return self.runner.target

    @property
    def drafters(self) -> Mapping[str, Drafter]:
        return self.runner.drafters

    @property
    def takes_turns(self) -> bool:
        """True if the models need not read again all that a reply loses to others."""
        return self.target.shelf is not None

    def warn(self, *sentences: str) -> None:
        """Add to the pair's info which settings do not take effect, and what runs slower than it could."""
        notes = self.info.notes
        notes = replace(notes, warning=" ".join(filter(None, (notes.warning, *sentences))))
        self.info = replace(self.info, notes=notes)

    def _measure(self) -> None:
        """Measure plain speed by replies for the yardstick, or by bare steps if a reply is too slow or too short.

        Bare steps run first: a GPU compiles and captures their launches at the first use.
        """
        runner, speed, prompt = self.runner, self._speed, read_prompt(self.runner)
        executor, bare = runner.executor, plain_speed(runner, prompt)
        checks, drafts = check_costs(runner, prompt), draft_costs(runner, prompt)
        if "draft" in drafts and 1 in checks:
            length, ms = max(drafts["draft"].items())
            self.info = replace(self.info, draft=replace(self.info.draft, cost=ms / length / checks[1]))
        with suppress(EngineError):
            if has_time(bare, FEW_STEPS):
                rehearse(self.generate, self.drafters.get("auto"))
            # A model's first steps are several times slower than later ones.
            executor.costs.forget()
            executor.costs.expect(checks, drafts)
            executor.policies.forget()
            speed.forget()
            self.info = speed.described(self.info)
            # Each plain reply becomes the yardstick, without a correction for load.
            fast = has_time(bare, REPLY_TOKENS)
            if fast and (loads := in_turn(self.generate, lambda: speed.yardstick.slowed)):
                speed.settle(loads)
        self.forget()
        speed.fall_back(bare)
        self.info = speed.described(self.info)

    def count(self, request: Count) -> Counted:
        """Count a chat's prompt tokens and dropped messages."""
        if request.limits.context == "refuse":
            refuse_length(self.info, self.tokenizer.longest, request)
        prompt = self._prompts.prompt(request)
        counted = Counted(request.id, len(prompt.tokens), self.info.context, prompt.dropped)
        if not request.tokens:
            return counted
        shown = self.album.shown(prompt.tokens)
        return replace(counted, token_ids=tuple(shown), text=self.tokenizer.named(shown))

    def generate(self, request: Generate, control: Control = UNCONTROLLED) -> Iterator[Event]:
        """Answer a chat: Started, then Step and Changed events, then Finished.

        Closing the iterator stops the reply; the caches then hold what was committed. Pictures are looked at and a long
        prompt is read in parts, with a PromptProgress event after each. Between two events other replies may go on: the
        models then read again what they lost of this one, whose text is the same.

        Raises:
            ContextError: the chat does not fit the context.
            EngineError: "request": an unknown or unavailable strategy, or a grammar that cannot be used.
        """
        refuse_strategy(self.info, request.speculation)
        started = perf_counter()
        self.shelf.deleted.discard(request.chat)
        refuse_length(self.info, self.tokenizer.longest, request)
        built = self._prompts.prompt(request)
        prompt, dropped, text = built.tokens, built.dropped, self._prompts.text(request, built)
        if not prompt:
            raise EngineError("request", "There is nothing to answer: the chat is empty.")
        self.tokenizer.check(of_text(prompt))
        if len(prompt) >= self.info.context:
            what = f"Even without {dropped} of its messages this chat" if dropped else "This chat"
            raise too_long(self.info, what, f"{len(prompt):,}", request)
        grammar, eos = self._prompts.held(request), self._ends(request)
        if grammar is not None and request.limits.ignore_eos:
            words = "A reply that goes on behind its end can be held to no grammar: leave out ignore_eos."
            raise EngineError("request", words)
        if grammar is not None and grammar.opener is not None and self.runner.stepwise is not None:
            grammar = None  # all of the reply would be written pass by pass, for calls that it may not make
        constraint = self._grammars.constraint(request, grammar, self._prompts.spans(request, built), eos)
        reply = ReplyInProgress(request, self.runner, self.tokenizer, TokenRules(eos, constraint), text, built, started)
        cancelled, changes = yield from self._look(reply, built.pictures, control)
        if cancelled:
            yield Finished.unbegun(request)
            return
        self.holder.hold(reply)
        if request.cold:
            self.forget()
        scoring = ScoringReader(self.runner, request.logprobs or 0) if request.scored else None
        reused = reply.meter.reused_tokens = self.target.rewind(prompt) if scoring is None else 0
        cancelled, more = yield from self._read(reply, control, scoring)
        yield Started(
            request.id,
            len(prompt),
            reused,
            request.sampling.seed,
            request.speculation,
            request.prefill,
            dropped,
            1e3 * (perf_counter() - started),
            scoring.logprobs(prompt, self.tokenizer) if scoring is not None else (),
        )
        if not cancelled:
            cancelled, last = reply.listen(control)
            changes += more + last
        if cancelled:
            yield reply.finished("cancelled")
            return
        yield from changes
        yield from self._write(reply, control)
        if isinstance(auto := self.drafters.get("auto"), AutoDrafter):
            auto.rank()
            self._learnt.keep(auto)

    def _turn_to(self, reply: ReplyInProgress) -> None:
        """Have pictures, read texts and what other chats wrote turn to a reply, whose text the models hold next."""
        self.album.hold(reply.prompt.tokens)
        cold = self.runner.earlier.hidden = reply.request.cold
        owner = reply.request.chat or (UNKNOWN if cold else NOBODY)
        self.shelf.hold(owner, reply.prompt.beginning, opened=not cold)

    def _look(
        self, reply: ReplyInProgress, pictures: Sequence[Picture], control: Control
    ) -> Generator[Event, None, tuple[bool, list[Changed]]]:
        """Look at pictures, in parts; return True if the reply was cancelled meanwhile, and its changes."""
        changes, until = list[Changed](), perf_counter() + PART_S
        with closing(self.album.look(pictures, reply.seen, reply.speculation.strategy)) as parts:
            for _ in parts:
                if perf_counter() > until:
                    self.holder.back_s = 0.0  # nothing of it is in the caches yet
                    yield PromptProgress(reply.request.id, 0, len(reply.prompt.tokens))
                    until = perf_counter() + PART_S
                cancelled, more = reply.listen(control)
                changes += more
                if cancelled:
                    return True, changes
        return False, changes

    def _read(
        self, reply: ReplyInProgress, control: Control, scoring: ScoringReader | None
    ) -> Generator[Event, None, tuple[bool, list[Changed]]]:
        """Read the prompt, in parts; return as `_look` does."""
        prompt, free_cores, changes = reply.prompt.tokens, self.runner.free_cores, list[Changed]()
        self.holder.begin_drafts(reply, prompt)
        room, most = self.info.context - len(prompt), reply.request.limits.max_tokens
        limit = draft_limit(self.runner.executor, longest_draft(reply.speculation), room, most)
        draft = reader(self.drafters, reply.speculation.strategy, prompt, limit, free_cores)
        fill = self.target.fill if scoring is None else scoring.fill
        reading, cancelled, reused = True, False, reply.meter.reused_tokens
        while reading:
            until = perf_counter() + PART_S
            with ReadAhead(draft, prompt, free_cores) as ahead:
                # After a change the new drafter reads what it needs.
                while reading := not cancelled and (fill(prompt) or (not changes and ahead.fill())):
                    cancelled, more = reply.listen(control)
                    changes += more
                    if perf_counter() > until:
                        break
            if reading and len(self.target.tokens) < len(prompt) - 1:
                yield PromptProgress(reply.request.id, len(self.target.tokens), len(prompt), reused)
                cancelled, more = reply.listen(control)
                changes += more
                if cancelled:
                    break
            self.holder.go_on(reply, prompt, lambda: self.target.rewind(prompt))
        return cancelled, changes

    def _write(self, reply: ReplyInProgress, control: Control) -> Iterator[Event]:
        request, prompt, speed = reply.request, reply.prompt.tokens, self._speed
        progress, constraint = reply.progress, reply.rules.constraint
        self.holder.go_on(reply, prompt, lambda: self.target.begin(prompt))
        # A stepwise executor has a speed of its own, with which no reply is compared.
        progress.compared = self.runner.executor_of(constraint, request.logprobs) is self.runner.executor
        due, begun = speed.yardstick.due, len(reply.prompt.begun)
        ends, top = reply.rules.ends, request.logprobs
        decoding = self.runner.reply(request.sampling, prompt, ends, due, constraint, top, begun)
        progress.decoding, company = decoding, self.holder.company
        company.open(reply)

        def begin() -> None:
            speed.begin(self.info.plain_speed(request.sampling) if progress.compared else 0.0)

        begin()
        try:
            for event in reply.steps(decoding, speed.yardstick, control, lambda: self.holder.again(reply, begin)):
                if isinstance(event, Finished) and progress.compared:
                    speed.observe(reply.meter.tally, request.sampling)
                    self.info = speed.described(self.info)
                if isinstance(event, Finished):
                    self.album.wrote(event.stats)
                    event = replace(event, read=self.shelf.taken)
                yield event
        finally:
            decoding.close()
            company.close(reply)
            if request.chat not in self.shelf.deleted:
                self.runner.earlier.add(request.chat, decoding.committed[len(prompt) :])

    def forget(self) -> None:
        """Empty every cache and reset the drafters; the cross-chat n-gram cache stays."""
        self.target.keep(0)
        for drafter in self.drafters.values():
            drafter.forget()

    def save_read(self, stop: Callable[[], bool]) -> None:
        """Write long texts that were read to disk, until `stop` says so."""
        self.shelf.save(stop)

    def forget_read(self, chat: str | None = None) -> None:
        """Remove all that was read, or what of it `chat` alone has, also from disk."""
        if chat is None:
            self.shelf.remove()
        else:
            self.shelf.forget(chat)
        self.forget()
        self.album.forget()

    def _ends(self, request: Generate) -> frozenset[int]:
        return frozenset() if request.limits.ignore_eos else self.eos | self._prompts.ends(request)
