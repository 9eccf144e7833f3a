"""The launches of the parts of a step: draft passes, the verify pass with its verdict, prefill."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from specchat.engine.api import Acceptance, Sampling
from specchat.engine.device.buffers import PASS_ROWS, VERIFY_ROWS
from specchat.engine.device.decoder import ALIGNED, DeviceDecoder, SkipFlags
from specchat.engine.device.graphs import Graphs
from specchat.engine.kernels.choose import choose, judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.strategies import MAX_DRAFT_LENGTH

Source = Literal["draft", "swift", "host"]
"""Who filled `fed`: the draft model, the target skipping layers, or tokens copied from the host."""


@dataclass(frozen=True)
class Verdict:
    """Of the drafted tokens `fed`, `accepted` stay of `tested`; `tokens` were added to the text."""

    accepted: int
    tested: int
    tokens: list[int]
    fed: list[int]


VERIFY_BUCKETS = (1, 2, 4, 8, VERIFY_ROWS)
"""Rows of a verify pass; a draft between two of them takes the wider one, which costs about the same."""


class Launches:
    """The device side of one loaded pair."""

    def __init__(
        self,
        target: DeviceDecoder,
        draft: DeviceDecoder | None,
        vocab: int,
        device: torch.device,
        captured: bool = True,
    ) -> None:
        """`vocab` tokens may be chosen: padding rows of the head never are. `captured` as in `Graphs`."""
        self.target = target
        self.draft = draft
        self.vocab = vocab
        self.device = device
        self.state = state = VerifyState.create(vocab, VERIFY_ROWS, device)
        self.flags = SkipFlags(target.config.layers, device)
        self.verified = Scored.create(VERIFY_ROWS, target.config.vocab, device)
        self.drafted = Scored.create(VERIFY_ROWS, target.config.vocab, device)
        self.chosen = torch.zeros(VERIFY_ROWS + 1, device=device, dtype=torch.int32)
        self.tail = torch.zeros(ALIGNED, device=device, dtype=torch.int32)
        """The last two committed tokens; the draft's first pass feeds both, so its cache never lags behind."""
        self._fed = torch.zeros_like(state.fed)
        self._lengths = torch.zeros(VERIFY_ROWS, ALIGNED, device=device, dtype=torch.int32)
        ahead = torch.arange(VERIFY_ROWS, device=device, dtype=torch.int32)[:, None].expand(-1, ALIGNED).contiguous()
        self._swift_ahead = ahead
        self._draft_ahead = torch.where(ahead == 0, -1, ahead)
        self._acceptance: Acceptance = "coupled"
        self._passed = torch.zeros(PASS_ROWS, device=device, dtype=torch.int32)
        self._passed_length = torch.zeros(1, device=device, dtype=torch.int32)
        self.report = torch.zeros(state.result.numel() + state.fed.numel(), device=device, dtype=torch.int32)
        """The verdict and what was fed, for the host."""
        pinned = device.type == "cuda"
        self.host_report = torch.zeros(self.report.shape, dtype=torch.int32, pin_memory=pinned)
        self.graphs = Graphs(device, [*state.tensors(), self.tail], captured)

    def begin(self, sampling: Sampling, prompt: Sequence[int], eos: Collection[int]) -> None:
        """A reply to `prompt` starts.

        Raises:
            ModelError: more end-of-text tokens than the kernels take.
        """
        self.state.set_sampling(sampling)
        self.state.begin(prompt, eos)
        self._place_tail(prompt)

    def place(self, committed: Sequence[int], prompt: int) -> None:
        """Set the text back to `committed`, the first `prompt` tokens of which are the prompt's."""
        self.state.place(committed, prompt)
        self._place_tail(committed)

    def judge_by(self, acceptance: Acceptance) -> None:
        """How the tokens drafted from now on are judged."""
        if acceptance != self._acceptance:
            self.state.set_acceptance(acceptance)
            self._acceptance = acceptance

    def propose(self, source: Source, length: int) -> None:
        """Fill fed[1 .. length] by drafting on the device."""
        if source == "draft":
            self.graphs.run(("draft", length), lambda: self._draft(length))
        elif source == "swift":
            self.graphs.run(("swift", length), lambda: self._swift(length))

    def feed(self, tokens: Sequence[int]) -> None:
        """Fill fed[1 ..] with a draft made on the host."""
        if tokens:
            self.state.fed[1 : len(tokens) + 1].copy_(torch.tensor(tokens, dtype=torch.int32), non_blocking=True)

    def verify(self, source: Source, length: int) -> None:
        """Check `length` drafted tokens; the outcome is in `host_report` once the device is done."""
        rows = next(bucket for bucket in VERIFY_BUCKETS if bucket > length)
        self.state.drafted.fill_(length)
        self.graphs.run(("verify", rows, source != "host"), lambda: self._verify(rows, source != "host"))

    def prefill(self, decoder: DeviceDecoder, tokens: Sequence[int], start: int) -> None:
        """Write up to PASS_ROWS tokens to a cache from slot `start` on; the slots after them hold nothing of use."""
        self._passed[: len(tokens)].copy_(torch.tensor(tokens, dtype=torch.int32))
        self._passed_length.fill_(start)
        name = "target" if decoder is self.target else "draft"
        rows = PASS_ROWS if self.graphs.captured else len(tokens)
        self.graphs.run(("prefill", name), lambda: decoder.forward(self._passed, self._passed_length, rows))

    def verdict(self, drafted: int) -> Verdict:
        """The outcome of the last verify pass over `drafted` tokens, once the device is done with it."""
        report = self.host_report.tolist()
        accepted, tested, emitted = report[:3]
        fed = report[self.state.result.numel() :]
        return Verdict(accepted, tested, report[3 : 3 + emitted], fed[1 : drafted + 1])

    def memory(self) -> int:
        """Bytes held on the device beside the models."""
        held = [*vars(self.state).values(), *vars(self.verified).values(), *vars(self.drafted).values()]
        return sum(t.numel() * t.element_size() for t in held if isinstance(t, Tensor))

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at slot `start`, copied to the host."""
        self._passed[0] = token
        self._passed_length.fill_(start)
        self.target.forward(self._passed, self._passed_length, 1)
        return self.target.logits(0, 1)[0, : self.vocab].cpu()

    def agreement(self, tokens: Sequence[int], start: int) -> list[int]:
        """Most probable next tokens at slots start .. after `tokens`, with the sub-layers of `flags` left out.

        Raises:
            ValueError: more than PASS_ROWS tokens.
        """
        if len(tokens) > PASS_ROWS:
            raise ValueError(f"{len(tokens)} tokens do not fit a pass of {PASS_ROWS}")
        self._passed[: len(tokens)].copy_(torch.tensor(tokens, dtype=torch.int32))
        self._passed_length.fill_(start)
        self.target.forward(self._passed, self._passed_length, len(tokens), self.flags)
        best: list[int] = []
        for first in range(0, len(tokens), VERIFY_ROWS):
            rows = min(VERIFY_ROWS, len(tokens) - first)
            best += self.target.logits(first, rows)[:rows, : self.vocab].argmax(-1).tolist()
        # What the trial wrote is replaced by what the whole model writes, bit for bit what was there.
        self.target.forward(self._passed, self._passed_length, len(tokens))
        return best

    def _place_tail(self, committed: Sequence[int]) -> None:
        self.tail[:2].copy_(torch.tensor([committed[-2] if len(committed) > 1 else 0, committed[-1]]))

    def _draft(self, length: int) -> None:
        assert self.draft is not None
        torch.add(self._draft_ahead, self.state.length, out=self._lengths)
        for i in range(length):
            rows = 2 if i == 0 else 1
            fed = self.tail if i == 0 else self.state.fed[i:]
            self.draft.forward(fed, self._lengths[i, :1], rows)
            self._choose(self.draft, rows - 1, i)

    def _swift(self, length: int) -> None:
        torch.add(self._swift_ahead, self.state.length, out=self._lengths)
        for i in range(length):
            self.target.forward(self.state.fed[i:], self._lengths[i, :1], 1, self.flags)
            self._choose(self.target, 0, i)

    def _choose(self, decoder: DeviceDecoder, row: int, index: int) -> None:
        """The draft's token `index`, by the target's options and noise, into fed[index + 1]."""
        scored = self.drafted.row(index)
        columns = min(self.vocab, decoder.config.vocab)
        process(decoder.logits(row, 1), self.state, index, scored, 1, columns)
        choose(scored, self.state, index, 1, self.state.fed[index + 1 :])

    def _verify(self, rows: int, sampled: bool) -> None:
        state = self.state
        self._fed.copy_(state.fed)
        self.target.forward(state.fed, state.length, rows)
        process(self.target.logits(0, rows), state, 0, self.verified, rows, self.vocab)
        judge(self.verified, state, rows, self.chosen, self.drafted if sampled else None)
        commit(self.chosen, state)
        # The last two of: the token that was pending, the tokens that were added.
        text = torch.cat((self._fed[:1], state.result[3:]))
        emitted = state.result[2:3]
        torch.index_select(text, 0, torch.cat((emitted - 1, emitted)), out=self.tail[:2])
        torch.cat((state.result, self._fed), out=self.report)
        self.host_report.copy_(self.report, non_blocking=True)


assert VERIFY_ROWS == MAX_DRAFT_LENGTH + 1
