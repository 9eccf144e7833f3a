"""The kernels of an int8 cache: entries as `model.kv_entries.stored` has them, and attention over what they say."""

import pytest
import torch
from torch import Tensor

from specchat.engine.kernels.attention import Scoring, attend
from specchat.engine.kernels.gpu_shapes import attention_splits
from specchat.engine.kernels.kv_entries import KvEntries, Scales, dequantised
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.rope import RopeRows, rope_and_write
from specchat.engine.kernels.workspace import workspace
from specchat.engine.model.kv_entries import loaded, stored
from tests.kernels.test_attention import DEVICE, DTYPES, Step, random_tree
from tests.kernels.test_rope import CAPACITY, Rotation

SHAPES = [(64, 32), (128, 32), (96, 32), (80, 16), (24, 8)]
"""Values of a head, and of a block: the greatest power of 2 up to 32 that divides them."""


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def int8(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Values and scales of keys or values [kv, capacity, D], apart as the GPU holds them."""
    rows = stored(x.float().cpu(), block)
    values, scales = rows.split([x.shape[-1], rows.shape[-1] - x.shape[-1]], -1)
    return values.contiguous().to(DEVICE), scales.clone(memory_format=torch.contiguous_format).view(torch.float32).to(
        DEVICE
    )


def written(call: Rotation, block: int, length: int, offsets: list[int], first: int = 0) -> tuple[Tensor, ...]:
    """Keys, values and their scales of an int8 cache that the kernel writes; 99 where it writes nothing."""
    rows, blocks = len(offsets), call.dim // block
    query = torch.zeros(rows, call.heads, call.dim, device=DEVICE, dtype=call.dtype)
    entries = [torch.full((call.kv, call.held, call.dim), 99, dtype=torch.int8, device=DEVICE) for _ in range(2)]
    scales = Scales(*(torch.full((call.kv, call.held, blocks), 99.0, device=DEVICE) for _ in range(2)))
    places = (torch.tensor(of, dtype=torch.int32, device=DEVICE) for of in ([length], offsets))
    partials = call.partials[:, first : first + rows].contiguous()
    rope_and_write(partials, call.norms, call.turns, RopeRows(rows, *places), query, KvEntries(*entries, scales))
    return *entries, *scales


def same(found: Tensor, expected: Tensor, off: float) -> None:
    """Bit by bit under the interpreter; a GPU divides and adds products in ways of its own, and may be `off`."""
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=off if found.is_cuda else 0)


@pytest.mark.parametrize(("dim", "block"), SHAPES)
@pytest.mark.parametrize("normed", [False, True])
def test_entries_are_those_of_the_processor(dim: int, block: int, normed: bool) -> None:
    length, offsets = 9, [0, 1, 2, 3, 4]
    call = Rotation(torch.float32, 4, 2, dim, 3, normed)
    _, keys, values = call.run(length, offsets)
    found = written(call, block, length, offsets)
    seen = slice(length, length + len(offsets))
    for whole, entries, scales in ((keys, *found[::2]), (values, *found[1::2])):
        wanted, of_wanted = int8(whole[:, seen], block)
        same(entries[:, seen], wanted, 1)
        same(scales[:, seen], of_wanted, 1e-8)
        others = [place for place in range(CAPACITY) if not seen.start <= place < seen.stop]
        assert (entries[:, others] == 99).all()
        assert (scales[:, others] == 99).all()


def test_an_entry_does_not_depend_on_its_company() -> None:
    call, length = Rotation(torch.float32, 4, 2, 64, 2, True, held=24), 20
    together = written(call, 32, length, [0, 1, 1, 2, 2, 3, 4, 5])
    for row in range(8):
        offset = [0, 1, 1, 2, 2, 3, 4, 5][row] - row
        alone = written(call, 32, length + row, [offset], first=row)
        place = (length + row) % 24
        assert all(torch.equal(one[:, place], mine[:, place]) for one, mine in zip(alone, together, strict=True))


def test_what_is_no_number_leaves_none_in_its_block() -> None:
    call = Rotation(torch.float32, 2, 1, 64, 1, False)
    for wrong in (torch.nan, torch.inf):
        call.partials[0, 0, -64] = wrong
        _, values, _, scales = written(call, 32, 0, [0])
        held = dequantised(values, scales)[0, 0]
        assert not held[:32].isfinite().any()
        assert held[32:].isfinite().all()


@pytest.mark.rotated(4)
@pytest.mark.parametrize(("dim", "block"), SHAPES)
@pytest.mark.parametrize("as_tree", [False, True])
@pytest.mark.parametrize("window", [0, 100])
def test_attention_is_that_over_what_the_entries_say(
    dim: int, block: int, as_tree: bool, window: int, dtype: torch.dtype
) -> None:
    start, rows = 300, 9
    step = Step(dtype, 4, dim, window=window)
    tree = random_tree(rows, seed=3)[0] if as_tree else None
    (keys, of_keys), (values, of_values) = int8(step.keys, block), int8(step.values, block)
    step.keys, step.values = dequantised(keys, of_keys).to(dtype), dequantised(values, of_values).to(dtype)
    expected = step.run(start, rows, tree)
    of_keys[:, start + rows :] = of_values[:, start + rows :] = torch.nan
    out = torch.empty_like(expected)
    space = workspace(rows, step.heads, dim, attention_splits(step.capacity), DEVICE)
    length = torch.tensor([start], dtype=torch.int32, device=DEVICE)
    masks = None if tree is None else torch.tensor(tree, device=DEVICE)
    query, scales = step.query[:rows].contiguous(), Scales(of_keys, of_values)
    attend(query, KvEntries(keys, values, scales), RowPlaces(length, masks), space, out, rows, Scoring(window=window))
    same(out, expected, 4e-6 if dtype == torch.float32 else 0.02)


def test_the_processor_s_rows_say_the_same() -> None:
    x = torch.randn(2, 5, 64)
    values, scales = int8(x, 32)
    assert torch.equal(dequantised(values, scales).cpu(), loaded(stored(x, 32), 64))
