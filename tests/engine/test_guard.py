"""The margin guards: what rows decide that depend on their company is decided anew where it is close."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.decoding.guard import Guard, RoughGuard
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.session import Session
from tests.engine.test_lossless import SAMPLINGS, finished, reply

OFF = 0.5
"""How far a logit of a pass of several rows is off, at most."""


class Apart:
    """Our decoder with the logits of several rows off by noise, as with kernels that depend on the number of rows."""

    def __init__(self, model: CpuDecoder) -> None:
        self._model = model

    def logits(self, hidden: Tensor) -> Tensor:
        made = self._model.logits(hidden)
        if len(hidden) == 1:
            return made
        noise = torch.rand(made.shape, generator=torch.Generator().manual_seed(len(hidden)))
        return made + OFF * (2 * noise - 1)

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)


class Lone(Apart):
    """Our decoder with the logits of one row, and of all that follow it, off by noise."""

    rough = False

    def forward(self, tokens: list[int], start: int, **options: object) -> Tensor:
        if not self.rough or start <= self._first:
            self._first, self.rough = start, len(tokens) == 1
        self._start = start
        return self._model.forward(tokens, start, **options)  # type: ignore[arg-type]

    def logits(self, hidden: Tensor) -> Tensor:
        made = self._model.logits(hidden)
        noise = torch.rand(made.shape, generator=torch.Generator().manual_seed(self._start))
        return made + OFF * (2 * noise - 1) if self.rough else made

    def exact(self, tokens: list[int], start: int) -> Tensor:
        self.rough = False
        return self._model.logits(self._model.forward(tokens, start))


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_close_choices_are_those_of_one_row(session: Session, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    executor, model = session.runner.executor, session.target.model
    assert isinstance(executor, HostExecutor)
    assert isinstance(model, CpuDecoder)
    apart = Apart(model)
    strayed = 0
    for seed in range(2):
        sampling = replace(SAMPLINGS[name], seed=seed)
        plain = finished(reply(session, "abcab", sampling, Limits(60), Speculation()))
        with monkeypatch.context() as patch:
            patch.setattr(executor, "target", apart)
            loose = finished(reply(session, "abcab", sampling, Limits(60), Speculation("draft", 8)))
            patch.setattr(executor, "_guard", Guard(apart, OFF))  # type: ignore[arg-type]
            last = finished(reply(session, "abcab", sampling, Limits(60), Speculation("draft", 8)))
        assert last.token_ids == plain.token_ids
        assert last.stats.num_choices_again > 0
        assert loose.stats.num_choices_again == 0
        strayed += loose.token_ids != plain.token_ids
    assert strayed


def test_what_is_not_close_is_not_made_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, model = session.runner.executor, session.target.model
    assert isinstance(executor, HostExecutor)
    assert isinstance(model, CpuDecoder)
    monkeypatch.setattr(executor, "_guard", Guard(model, 1e-9))
    for name in SAMPLINGS:
        last = finished(reply(session, "abcab", SAMPLINGS[name], Limits(60), Speculation("draft", 8)))
        assert last.stats.num_accepted_draft_tokens > 0
        assert last.stats.num_choices_again == 0


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_close_choices_after_lone_rows_are_those_of_several(
    session: Session, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    executor, model = session.runner.executor, session.target.model
    assert isinstance(executor, HostExecutor)
    assert isinstance(model, CpuDecoder)
    again, strayed = Counter[str](), 0
    for seed in range(2):
        sampling = replace(SAMPLINGS[name], seed=seed)
        exact = finished(reply(session, "abcab", sampling, Limits(60), Speculation()))
        lone = Lone(model)
        with monkeypatch.context() as patch:
            patch.setattr(executor, "target", lone)
            loose = finished(reply(session, "abcab", sampling, Limits(60), Speculation()))
            strayed += loose.token_ids != exact.token_ids
            patch.setattr(executor, "_guard", RoughGuard(lone, OFF))  # type: ignore[arg-type]
            for strategy in ("plain", "lookup", "draft"):
                last = finished(reply(session, "abcab", sampling, Limits(60), Speculation.of(strategy)))
                assert last.token_ids == exact.token_ids, strategy
                again[strategy] += last.stats.num_choices_again
    assert strayed
    assert again["plain"] > 0
    assert again["lookup"] > 0
