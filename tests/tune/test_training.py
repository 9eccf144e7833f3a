"""A training that is stopped anywhere goes on as if it had not been, and its files are whole or as they were."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune import TUNED, files, training
from specchat.tune.families import untrained
from specchat.tune.rows import LONGEST, Batch, TrainingText
from specchat.tune.shelf import install
from specchat.tune.target import FrozenTarget
from specchat.tune.training import Training
from specchat.tune.workshop import Workshop, fingerprint, put_heads


def weights(trained: Training) -> dict[str, Tensor]:
    return {name: part.clone() for name, part in trained.trainee.state_dict().items()}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("head", TUNED)
def test_stopped_and_resumed_weights_are_those_of_one_run(
    head: Head, target: FrozenTarget, learnt: list[Path], tmp_path: Path
) -> None:
    whole = Training(untrained(head, target, []), tmp_path / "whole")
    losses = [at.loss for at in whole.run(learnt, 7, lambda: False)]
    pieces: list[float] = []
    for stop in (0, 1, 4, 7):
        part = Training(untrained(head, target, []), tmp_path / "part")
        assert part.step == len(pieces)
        pieces += [at.loss for at in part.run(learnt, 7, lambda part=part, stop=stop: part.step >= stop)]
    assert pieces == losses
    for name, weight in weights(whole).items():
        assert torch.equal(weight, part.trainee.state_dict()[name])
    untouched = untrained(head, target, []).state_dict()
    assert any(not torch.equal(weight, untouched[name]) for name, weight in weights(whole).items())


def test_each_step_draws_anew(target: FrozenTarget, learnt: list[Path], tmp_path: Path) -> None:
    trainee, seeds = untrained("medusa", target, []), list[int]()
    loss = trainee.loss
    trainee.loss = lambda batch, seed: (seeds.append(seed), loss(batch, seed))[1]  # type: ignore[method-assign]
    list(Training(trainee, tmp_path / "state").run(learnt, 5, lambda: False))
    assert len(set(seeds)) == 5


def test_a_process_that_is_killed_loses_what_came_after_the_last_saving(
    target: FrozenTarget, learnt: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_S", 0.0)
    running = Training(untrained("medusa", target, []), tmp_path / "state")
    steps = running.run(learnt, 9, lambda: False)
    for _ in range(4):
        next(steps)
    # Three steps were saved when the fourth was told, and nothing of it ran after that.
    assert Training(untrained("medusa", target, []), tmp_path / "state").step == 3
    steps.close()
    assert Training(untrained("medusa", target, []), tmp_path / "state").step == 4


def test_a_step_that_was_cut_is_not_kept(
    target: FrozenTarget, learnt: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Training(untrained("medusa", target, []), tmp_path / "state")
    list(running.run(learnt, 2, lambda: False))
    kept = (tmp_path / "state").read_bytes()

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    # Of two optimisers the first has changed its weights already.
    monkeypatch.setattr(torch.optim.AdamW, "step", cut)
    with pytest.raises(KeyboardInterrupt):
        list(running.run(learnt, 4, lambda: False))
    assert (tmp_path / "state").read_bytes() == kept


def sized(folder: Path, sizes: list[int]) -> list[Path]:
    """Files of so many bytes."""
    made = [folder / str(number) for number in range(len(sizes))]
    for file, size in zip(made, sizes, strict=True):
        file.write_bytes(bytes(size))
    return made


def test_all_rows_come_in_a_round_and_in_another_order_in_the_next(tmp_path: Path) -> None:
    rows = sized(tmp_path, [1] * 17)
    rounds = [[row for step in (2 * turn, 2 * turn + 1) for row in training._batch(rows, step)] for turn in range(3)]
    assert all(len(set(turn)) == 16 for turn in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    assert training._batch(rows[:3], 5) != []


def test_rows_of_a_step_are_about_as_long(tmp_path: Path) -> None:
    count = training.ROWS * training.SORTED
    rows = sized(tmp_path, [17 * i % (2 * count) for i in range(2 * count)])
    steps = [[row.stat().st_size for row in training._batch(rows, step)] for step in range(2 * training.SORTED)]
    assert sorted(size for sizes in steps for size in sizes) == list(range(2 * count))
    # Drawn as they come, the rows of a step would be seven eighths of the whole range apart.
    assert sum(max(sizes) - min(sizes) for sizes in steps) / len(steps) < count / 8
    # And long ones do not come last.
    assert [sizes[0] for sizes in steps] != sorted(sizes[0] for sizes in steps)


def test_more_steps_go_on_with_what_is_trained(target: FrozenTarget, learnt: list[Path], tmp_path: Path) -> None:
    first = Training(untrained("medusa", target, []), tmp_path / "state")
    assert [at.step for at in first.run(learnt, 2, lambda: False)] == [1, 2]
    more = Training(untrained("medusa", target, []), tmp_path / "state")
    assert [at.step for at in more.run(learnt, 5, lambda: False)] == [3, 4, 5]
    assert list(more.run(learnt, 5, lambda: False)) == []


@pytest.mark.parametrize(
    ("error", "number"),
    [("Error while serializing: I/O error: No space left on device (os error 28)", errno.ENOSPC), ("else", errno.EIO)],
)
def test_a_full_disk_leaves_what_was_there(
    error: str, number: int, target: FrozenTarget, learnt: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    first = Training(untrained("medusa", target, []), path)
    list(first.run(learnt, 2, lambda: False))
    kept = path.read_bytes()

    def full(tensors: dict[str, Tensor], new: Path, metadata: dict[str, str]) -> None:
        del tensors, metadata
        new.write_bytes(b"half")
        raise SafetensorError(error)

    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(OSError) as raised:
        list(first.run(learnt, 4, lambda: False))
    assert (raised.value.errno, raised.value.filename) == (number, str(path))
    assert path.read_bytes() == kept
    assert sorted(os.listdir(tmp_path)) == ["learnt", "state"]


@pytest.mark.parametrize("damage", [b"", b"x" * 900])
def test_a_damaged_file_is_told(damage: bytes, target: FrozenTarget, learnt: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(damage)
    with pytest.raises(OSError, match="it is damaged") as raised:
        Training(untrained("medusa", target, []), path)
    assert not raised.value.errno
    learnt[0].write_bytes(damage)
    with pytest.raises(OSError, match="it is damaged"):
        TrainingText.read(learnt[0])
    list(Training(untrained("eagle3", target, []), tmp_path / "other").run(learnt[1:], 1, lambda: False))
    with pytest.raises(OSError, match="it is damaged"):
        Training(untrained("medusa", target, []), tmp_path / "other")


def test_a_row_keeps_its_reply_and_what_stands_before_it(tmp_path: Path) -> None:
    length, start = LONGEST + 60, LONGEST + 20
    row = TrainingText(torch.arange(length), start, {3: torch.arange(length - 1.0).unsqueeze(1)})
    row.write(tmp_path / "row")
    kept = TrainingText.read(tmp_path / "row")
    assert kept.tokens.tolist() == list(range(60, length))
    assert kept.tokens[kept.start] == start
    torch.testing.assert_close(kept.states[3], row.states[3][60:], atol=2, rtol=0)  # bfloat16
    batch = Batch.of([kept])
    assert batch.tokens[batch.replied()].tolist() == list(range(start, length))


def test_heads_that_went_astray_are_not_written(target: FrozenTarget, tmp_path: Path) -> None:
    trainee = untrained("medusa", target, [])
    with torch.no_grad():
        trainee.get_parameter("heads.0.1.weight")[0, 0] = 1e6
    with pytest.raises(ModelError, match=r"0\.1\.weight holds values that are no numbers"):
        put_heads(tmp_path, trainee.published())
    assert not os.listdir(tmp_path)


def test_a_workshop_is_of_one_target_and_one_set_of_prompts(target: FrozenTarget, tmp_path: Path) -> None:
    shop, mark = Workshop(tmp_path), fingerprint(target.checkpoint)

    def begun(target: str, asked: object) -> bool:
        before = shop.state.exists()
        other = shop.prepare("medusa", target, asked)
        assert shop.state.exists() == (before and not other)
        shop.state.write_bytes(b"")
        return other

    assert not begun(mark, ["a"])
    assert not begun(mark, ["a"])
    assert begun(mark, ["b"])
    changed = replace(target.checkpoint, config=target.config.cut(1))
    assert begun(fingerprint(changed), ["b"])
    (shop.folder / "about.json").write_bytes(b"\xff{")
    assert begun(mark, ["b"])


def test_a_fingerprint_is_that_of_the_weights(target: FrozenTarget, tmp_path: Path) -> None:
    copied = [tmp_path / shard.name for shard in target.checkpoint.shards]
    for shard, copy in zip(target.checkpoint.shards, copied, strict=True):
        copy.write_bytes(shard.read_bytes())
    same: Checkpoint = replace(target.checkpoint, shards=tuple(copied))
    assert fingerprint(same) == fingerprint(target.checkpoint)
    data = bytearray(copied[0].read_bytes())
    data[-5] ^= 1
    copied[0].write_bytes(data)
    assert fingerprint(same) != fingerprint(target.checkpoint)


def test_heads_are_installed_whole(target: FrozenTarget, tmp_path: Path) -> None:
    heads, place = tmp_path / "heads", tmp_path / "place"
    heads.mkdir()
    place.mkdir()
    put_heads(heads, untrained("medusa", target, []).published())
    install(heads, place)
    install(heads, place)
    assert {file.name: file.read_bytes() for file in place.iterdir()} == {
        file.name: file.read_bytes() for file in heads.iterdir()
    }
