"""Replies in company on a GPU: a pass over a row of each, which has a text memory of its own.

Products read the weights once for all rows. All that reads or writes the memory of a text is launched for each reply,
as where it is alone.
"""

from collections.abc import Callable, Collection, Sequence
from typing import cast

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.host_loops import HostDraft
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.together import Companion
from specchat.engine.device.attention import Placed
from specchat.engine.device.clock import Clock
from specchat.engine.device.decoder import DeviceDecoder, RowOptions
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.skips import ALIGNED
from specchat.engine.device.stepwise import DeviceRows
from specchat.engine.device.text_memory import TextRows
from specchat.engine.device.verify import Report, Verifier
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.kernels.gpu_shapes import IN_COMPANY, VERIFY_ROWS
from specchat.engine.kernels.transfer import send
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.memory import gpu_need
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.model.copies import CacheEntries, Tail

GraphsOf = Callable[[Sequence[Tensor]], Graphs]
"""Makes graphs whose bodies advance these tensors."""


class DeviceSeat(CacheCopy):
    """A cache for a text in company, and what chooses its tokens.

    Attributes:
        number: of the seat.
        rows: the text's row in a pass, from which on entries are written.
    """

    def __init__(self, number: int, decoder: DeviceDecoder, start: Tensor, vocab: int, graphs_of: GraphsOf) -> None:
        """`start` int32 [1] has the position of the row."""
        memory = decoder.another_text()
        super().__init__(memory.entries)
        self.number, self._furthest = number, 0
        self.rows = TextRows(0, Placed(1, start, start, decoder.buffers.offsets, None), memory)
        self._state = state = VerifyState.create(vocab, VERIFY_ROWS, decoder.device)
        self._verifier = Verifier(decoder, state, None, vocab, decoder.device, rows=1)
        # Kernels are compiled once for aligned pointers, and a row of a pass may start anywhere.
        self._logits = torch.zeros_like(decoder.last_logits[:1])
        self._graphs = graphs_of([*state.tensors(), *self._verifier.text])

    def tail(self, held: int) -> Tail | None:
        return self.rows.memory.tail(max(self._furthest, held))

    def resume(self, tail: Tail | None) -> None:
        if tail is not None:
            self._furthest = tail.numbers[0]
            self.rows.memory.resume(tail)

    def begin(self, rules: ReplyRules, text: list[int]) -> None:
        """Choose tokens after `text` by `rules` from here on."""
        self._state.set_sampling(rules.sampling)
        self._state.begin(text, rules.eos, len(text) - rules.begun)
        self._verifier.place(text)

    def choose(self, row: Tensor) -> None:
        """Choose the next token, by logits float32 [1, vocab] on the device."""
        self._logits[:, : row.shape[1]].copy_(row)
        self._graphs.run_where_room("judge", lambda: self._verifier.judge(1, "chain", self._logits))
        self._verifier.copy_report(0)

    def report(self) -> Report:
        """The last choice, once the device has ended it."""
        return self._verifier.report(0)

    def memory(self) -> int:
        """Bytes held."""
        return (
            self.rows.memory.size
            + self._verifier.memory()
            + self._logits.nbytes
            + sum(one.nbytes for one in self._state)
        )


class DeviceTexts(DeviceRows):
    """A model on a device that reads a token each of several texts in one pass."""

    def __init__(self, cached: CachedModel[DeviceModel], vocab: int, room: int, graphs_of: GraphsOf) -> None:
        """Memory of texts is allocated as it is needed, `room` bytes at most."""
        super().__init__(cached.model, vocab)
        decoder, device = cached.model.decoder, cached.model.device
        self.most = min(IN_COMPANY, room // (decoder.text.size + gpu_need.choosing(decoder.config)))
        """Most texts."""
        self._graphs_of, self._graphs = graphs_of, graphs_of([])
        self._inputs = torch.zeros(2 + self.most, ALIGNED, dtype=torch.int32, device=device)
        """The tokens of a pass, and the last one's row; then for each seat the position of its row."""
        self._seats: list[DeviceSeat] = []
        self._clock = Clock(device)

    # Beyond the inference mode of a caller, its tensors could not change.
    @torch.inference_mode(mode=False)
    def copied(self, used: Collection[CacheCopy]) -> CacheCopy | None:
        model, seats = self._model, self._seats
        if model.pictures is not None:
            return None
        free = next((seat for seat in seats if seat not in used), None)
        if free is None and len(seats) < self.most:
            try:
                start = self._inputs[2 + len(seats), :1]
                free = DeviceSeat(len(seats), model.decoder, start, self.vocab, self._graphs_of)
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                self.most = len(seats)
                return None
            seats.append(free)
        return free

    def entries(self) -> CacheEntries:
        return self._model.entries()

    def tail(self, held: int) -> Tail | None:
        return self._model.tail(held)

    def logits_apart(self, tokens: Sequence[int], positions: Sequence[int], copies: Sequence[CacheCopy]) -> Tensor:
        self._clock.start()
        seats, decoder = cast(Sequence[DeviceSeat], copies), self._model.decoder
        # In the order of seats, so that there is one graph for each set of them.
        order = sorted(range(len(seats)), key=lambda i: seats[i].number)
        inputs = [[0] * ALIGNED, [len(order) - 1] * ALIGNED, *([0] * ALIGNED for _ in self._inputs[2:])]
        for row, i in enumerate(order):
            inputs[0][row], inputs[2 + seats[i].number][0] = tokens[i], positions[i]
        send([value for line in inputs for value in line], self._inputs.view(-1))
        texts = [seats[i].rows._replace(first=row) for row, i in enumerate(order)]

        # Not aligned, like that of a verify pass: kernels are compiled for each.
        options = RowOptions(self._inputs[1, 1:2], apart=texts)

        def body() -> None:
            decoder.forward(self._inputs[0], texts[0].at.start, len(texts), options=options)
            decoder.logits(0, len(texts))

        self._graphs.run_where_room(tuple(seats[i].number for i in order), body)
        found = decoder.last_logits[: len(order), : self.vocab].split(1)
        return torch.cat([found[order.index(i)] for i in range(len(order))])

    def finish(self) -> None:
        self._clock.drafted()
        self._clock.verified()
        self._clock.wait()

    def memory(self) -> int:
        return sum(seat.memory() for seat in self._seats)


assert IN_COMPANY <= ALIGNED


class DeviceCompanion(Companion):
    """Executor of a reply in company whose tokens the device chooses, as it does where the reply is alone."""

    copy: DeviceSeat

    def begin(self, rules: ReplyRules, prompt: list[int]) -> None:
        assert rules.constraint is None
        assert rules.top is None
        self.copy.begin(rules, prompt)

    def take(self, row: Tensor) -> None:
        self.copy.choose(row)
        super().take(row)  # a row without a choice is none

    def _verify_draft(self, drafting: HostDraft, likeliest: bool, drafted: float) -> StepOutcome:
        del likeliest, drafted
        self._taken()
        report = self.copy.report()
        sources = drafting.sources
        return StepOutcome(report.tokens, (), (), 0, (), 0.0, 0.0, strategy=drafting.strategy, sources=sources)
