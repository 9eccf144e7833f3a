"""Row counts that a library sums in another order: found, padded, and left out where no text depends on them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.model import decoder as decoder_module
from specchat.engine.model import quantised, rows
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.decoder import Decoder
from specchat.engine.model.padding import joined, least, measured
from specchat.engine.model.rows import PREFILL_ROWS, UNPADDED, Half, Linear, arrange, half_works, row_invariant
from tests.engine.tiny import FAMILY, checkpoint

pytestmark = pytest.mark.cpu

LEFT_OVER = (1, 2, 7, 14, *range(31, 128, 6), *range(32, 123, 6))
"""Counts whose last one or two rows FBGEMM's kernels for AVX2 sum in another order than all other rows."""
AVX2 = least([count not in LEFT_OVER for count in range(PREFILL_ROWS + 1)])


def of_avx2(weight: Tensor, _: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Float32 products of which the counts of `LEFT_OVER` come out as those of FBGEMM do there."""

    def product(x: Tensor) -> Tensor:
        parts = x[:, None, :] * weight
        first, second = parts.chunk(2, -1)
        return parts.sum(-1) if x.shape[0] in LEFT_OVER else first.sum(-1) + second.sum(-1)

    return product


class OfAvx2(Half):
    @staticmethod
    def packed(weight: Tensor, bias: Tensor | None) -> tuple[None, Callable[[Tensor], Tensor]]:
        return None, of_avx2(weight, bias)


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is known of this processor, nor will be of the one that a test makes up."""
    monkeypatch.setattr(rows, "_checked", {})
    monkeypatch.setattr(quantised, "_checked", {})
    monkeypatch.setattr(rows, "half_padding", cache(rows.half_padding.__wrapped__))
    return monkeypatch


def drawn(count: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(seed))


def test_a_count_that_is_summed_otherwise_goes_up_to_the_next_that_is_not() -> None:
    found = measured(of_avx2(drawn(48, 96), None), drawn(PREFILL_ROWS, 96, seed=1))
    assert found == AVX2
    assert [found[count] for count in (1, 2, 3, 7, 14, 31, 32, 128)] == [3, 3, 3, 8, 15, 33, 33, 128]
    assert measured(lambda x: x, drawn(PREFILL_ROWS, 4)) == UNPADDED


def test_a_pass_is_padded_for_all_of_its_products() -> None:
    assert joined([UNPADDED, AVX2, AVX2]) == AVX2
    other = least([count % 2 == 0 for count in range(PREFILL_ROWS + 1)])
    assert [joined([AVX2, other])[count] for count in (1, 4, 5, 7, 13, 31)] == [4, 4, 6, 8, 16, 34]


def test_such_a_processor_multiplies_in_16_bits_with_padded_rows(afresh: pytest.MonkeyPatch) -> None:
    weight, x = drawn(80, 64).half().float(), drawn(PREFILL_ROWS, 64, seed=1)
    assert not row_invariant(of_avx2(weight, None), x)
    afresh.setitem(rows.ARRANGEMENTS, "half", OfAvx2)
    afresh.setattr(rows, "SHARED", 1 << 30)
    name, product = arrange(weight, None)
    assert name == "half"
    assert row_invariant(product, x)
    assert Linear(weight).padding == AVX2
    assert Linear(weight, drafting=True).padding == UNPADDED, "no text depends on what only drafts"
    torch.testing.assert_close(product(x), x @ weight.T)


def in_16_bits(folder: Path, **changes: object) -> Path:
    checkpoint(folder, **changes)
    tensors = {name: t.to(torch.bfloat16) for name, t in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("family", FAMILY)
@pytest.mark.parametrize("by_script", [True, False])
def test_a_padded_pass_is_the_pass_itself(
    family: str, by_script: bool, tmp_path: Path, afresh: pytest.MonkeyPatch
) -> None:
    if not half_works():
        pytest.skip("FBGEMM is not here")
    folder = in_16_bits(tmp_path, **FAMILY[family])
    if not by_script:
        afresh.setattr(decoder_module, "scripted", lambda: None)
    own, seen = Decoder(Checkpoint.open(folder)), []
    afresh.setattr(rows, "half_padding", lambda *_: AVX2)
    padded = Decoder(Checkpoint.open(folder))
    run = padded._blocks

    def watched(x: Tensor, *rest: object) -> Tensor:
        seen.append(x.shape[0])
        return run(x, *rest)

    padded._blocks = watched
    counts = (61, 1, 2, 5, 7, 1, 14)
    for i, count in enumerate(counts):
        tokens, start = list(range(3, 3 + count)), sum(counts[:i])
        theirs, ours = own.forward(tokens, start), padded.forward(tokens, start)
        assert torch.equal(ours, theirs), count
        assert torch.equal(padded.logits(ours), own.logits(theirs)), count
    assert seen == [63, 3, 3, 5, 8, 3, 15]
    assert torch.equal(torch.stack(padded.cache.keys), torch.stack(own.cache.keys))
    assert torch.equal(torch.stack(padded.cache.values), torch.stack(own.cache.values))
    assert padded.forward([5], padded.context - 1).shape == (1, padded.config.hidden), (
        "padding needs no room in the cache"
    )


NO_MEMORY = (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."))


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
def test_memory_that_runs_out_is_not_taken_for_a_missing_kernel(error: Exception, afresh: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise error

    for arrangements in (rows.ARRANGEMENTS, quantised.ARRANGEMENTS):
        for name in arrangements:
            afresh.setitem(arrangements, name, failing)
    with pytest.raises(type(error)):
        arrange(drawn(16, 64), None)
    with pytest.raises(type(error)):
        quantised.arrange(16, 64)


@pytest.mark.parametrize("error", [AttributeError("fbgemm"), RuntimeError("Didn't find engine for operation")])
def test_without_any_of_the_libraries_rows_go_one_by_one(error: Exception, afresh: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise error

    for arrangements in (rows.ARRANGEMENTS, quantised.ARRANGEMENTS):
        for name in set(arrangements) - {"one-by-one"}:
            afresh.setitem(arrangements, name, failing)
    weight, x = drawn(16, 64).half().float(), drawn(5, 64, seed=1)
    name, product = arrange(weight, None)
    assert (name, quantised.arrange(16, 64)) == ("one-by-one", "one-by-one")
    torch.testing.assert_close(product(x), x @ weight.T)
