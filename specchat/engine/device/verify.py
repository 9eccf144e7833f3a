"""Verify pass, and its report to the host in one copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.decoder import Branches, DeviceDecoder, RowOptions
from specchat.engine.device.skips import ALIGNED
from specchat.engine.kernels.block import judge_block
from specchat.engine.kernels.choose import judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState

Kind = Literal["chain", "sampled chain", "sampled block", "tree"]
"""Kinds of draft to judge. A model's chain is a sample, judged token by token or as a block; a tree never is."""

BUCKETS: dict[Kind, tuple[int, ...]] = {
    "chain": (1, 2, 4, 8, VERIFY_ROWS),
    "sampled chain": (1, 2, 4, 8, VERIFY_ROWS),
    "sampled block": (1, 2, 4, 8, VERIFY_ROWS),
    # Fewer than two draft tokens do not branch.
    "tree": (4, 8, VERIFY_ROWS),
}
"""Rows of a verify pass; a draft between two sizes uses the larger one, at about the same cost."""


@dataclass(frozen=True)
class Report:
    """Outcome of a step: `tokens` were added, beginning with those of the nodes `path`; `tested` positions were judged.

    `drafts` are the tokens of nodes 1, 2, ..., `parents` their parent nodes; `likeliest` are the tokens of the largest
    logit after nodes 0, 1, ... of a tree.
    """

    tokens: tuple[int, ...]
    path: tuple[int, ...]
    tested: int
    drafts: tuple[int, ...]
    parents: tuple[int, ...]
    likeliest: tuple[int, ...]


class TextEnd(NamedTuple):
    """The end of the text on the device.

    Attributes:
        tail: int32, the last two tokens, apart as kernels are compiled for aligned pointers.
        recent: int32 [VERIFY_ROWS], the last tokens, as many as a step adds at most; zeros before a shorter text.
    """

    tail: Tensor
    recent: Tensor


class Verifier:
    """Verify pass of the target over a step's nodes, which judges them and commits the accepted ones to the state."""

    def __init__(
        self,
        target: DeviceDecoder,
        state: VerifyState,
        drawn: Scored | None,
        vocab: int,
        device: torch.device,
        rows: int = VERIFY_ROWS,
    ) -> None:
        """Initialise, for passes of up to `rows`.

        `drawn` holds the distributions that the tokens of a sampled chain come from, where there are such.
        """
        self._target = target
        self._state = state
        self._drawn = drawn
        self._vocab = vocab
        self._scored = Scored.create(rows, target.config.vocab, device)
        self._chosen = torch.zeros(VERIFY_ROWS + 1, device=device, dtype=torch.int32)
        self.text = TextEnd(*(torch.zeros(size, device=device, dtype=torch.int32) for size in (ALIGNED, VERIFY_ROWS)))
        pinned = device.type == "cuda"
        self._on_host = [torch.zeros(state.report.shape, dtype=torch.int32, pin_memory=pinned) for _ in range(2)]
        """One report of a finished step, one of the step that follows it meanwhile."""
        self._sure = [torch.zeros(state.sure.shape, pin_memory=pinned) for _ in range(2)]
        """Likewise probabilities of draft tokens, which the next draft may overwrite on the device."""
        nodes = state.fed.numel()
        self._begins = 3, 3 + nodes, 3 + 2 * nodes, 4 + 3 * nodes, 4 + 4 * nodes
        """Indices of a report's parts: added tokens, their nodes, drafts after their number, parents, likeliest."""

    def place(self, token_ids: Sequence[int]) -> None:
        """Set the text to `token_ids`."""
        last = [*[0] * VERIFY_ROWS, *token_ids[-VERIFY_ROWS:]][-VERIFY_ROWS:]
        self.text.recent.copy_(torch.tensor(last))
        self.text.tail[:2].copy_(self.text.recent[-2:])

    def forward(self, rows: int, branching: bool) -> None:
        """Run the target over the first `rows` nodes, including all draft tokens; reads nothing back."""
        state, target = self._state, self._target
        tree = Branches(state.length, state.depth, state.path) if branching else None
        target.forward(state.fed, state.length, rows, tree=tree, options=RowOptions(state.drafted))
        target.logits(0, rows)

    def judge(self, rows: int, kind: Kind, logits: Tensor | None = None) -> None:
        """Judge the draft by its logits, or those of `forward`, and commit what is accepted; reads nothing back."""
        state, target = self._state, self._target
        logits = target.last_logits if logits is None else logits
        state.node.zero_()
        if kind == "tree":
            state.likeliest[:rows].copy_(logits[:rows, : self._vocab].argmax(-1))
        process(logits, state, 0, self._scored, rows, self._vocab)
        if kind == "sampled block":
            assert self._drawn is not None
            judge_block(self._scored, state, rows, self._chosen, self._drawn)
        else:
            judge(self._scored, state, rows, self._chosen, self._drawn if kind == "sampled chain" else None)
        commit(self._chosen, state, *self.text)
        if kind == "tree":
            target.keep(state, None)
            if target.states is not None:
                target.states.keep(state, rows)

    def copy_report(self, turn: int, drafted: bool = False) -> None:
        """Queue the copy of the last pass's report to the host, as number `turn` of two; `drafted` on the device."""
        self._on_host[turn].copy_(self._state.report, non_blocking=True)
        if drafted:
            self._sure[turn].copy_(self._state.sure, non_blocking=True)

    def confidence(self, turn: int, drafted: int) -> tuple[float, ...]:
        """Probabilities of the draft tokens of report `turn`."""
        return tuple(self._sure[turn][:drafted].tolist())

    def report(self, turn: int) -> Report:
        """Return report `turn`, already copied to the host."""
        values = self._on_host[turn].tolist()
        accepted, tested, emitted = values[:3]
        added, kept, drafts, parents, likeliest = self._begins
        drafted = values[drafts]
        return Report(
            tokens=tuple(values[added : added + emitted]),
            path=tuple(values[kept + 1 : kept + 1 + min(accepted, emitted)]),
            tested=tested,
            drafts=tuple(values[drafts + 2 : drafts + 2 + drafted]),
            parents=tuple(values[parents + 1 : parents + 1 + drafted]),
            likeliest=tuple(values[likeliest : likeliest + 1 + drafted]),
        )

    def memory(self) -> int:
        """Bytes held on the device besides the target."""
        return sum(t.numel() * t.element_size() for t in self._scored)
