"""The device path on GPUs that are not there: what captures forbid, and what the host may look at when."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from mmap import PAGESIZE
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from specchat.bench.published import PUBLISHED
from specchat.engine.decoding.reply_rules import Allowed
from specchat.engine.device import clock as clock_module
from specchat.engine.device import drafting
from specchat.engine.device.clock import SPIN_S, Clock, PassEnd, SpinWait
from specchat.engine.device.company import DeviceTexts
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.weights import load
from specchat.engine.errors import ModelError
from specchat.engine.grammar.stepped import SteppedConstraint
from specchat.engine.hardware import page_locked
from specchat.engine.hardware.gpu import CHOSEN
from specchat.engine.hardware.gpu_failure import is_gpu_failure
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.hardware.page_locked import lockable, roomy
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.transfer import send
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import Plan, plan
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.load import load_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, ON_GPU, SHAPE
from tests.device.test_company import alone, in_company
from tests.device.test_decoding import SAMPLINGS, write
from tests.device.test_families import changes
from tests.device.test_gguf import FILES, written
from tests.device.test_recurrent import changes as recurrent
from tests.device.test_recurrent import made
from tests.engine.tiny import VOCAB, checkpoint, perturbed
from tests.gpu_net.fake_torch import FakeTorch, fake_torch
from tests.gpu_net.runtime import Event, Graph
from tests.gpu_net.shapes import LAYERS, pair, prepared

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

HOST, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)
KEPT: list[Tensor] = []


class Values:
    """Tensors for planted faults."""

    def __init__(self) -> None:
        self.here, self.whole = torch.zeros(8, device=FIRST), torch.zeros(8, device=FIRST, dtype=torch.int32)
        self.elsewhere = torch.zeros(8, device=SECOND)
        self.table, self.rows = (
            torch.zeros(8, 8, device=FIRST, dtype=dtype) for dtype in (torch.bfloat16, torch.float32)
        )
        self.pageable, self.pinned = torch.zeros(8), torch.zeros(8, pin_memory=True)


IN_A_CAPTURE: dict[str, tuple[Callable[[Values], object], str]] = {
    "a value is asked for": (lambda v: v.here.sum().item(), "waits within a capture"),
    "all values are asked for": (lambda v: v.here.tolist(), "waits within a capture"),
    "places are asked for": (lambda v: torch.ops.aten.nonzero(v.here), "waits within a capture"),
    "to pageable memory": (lambda v: v.pageable.copy_(v.here, non_blocking=True), "pageable memory"),
    "a blocking copy to the host": (lambda v: v.pinned.copy_(v.here), "a blocking copy"),
    "values of the host": (lambda v: v.here.copy_(v.pinned, non_blocking=True), "the host's values is captured"),
    "a copy that casts": (lambda v: v.pinned.copy_(v.whole, non_blocking=True), "needs another one"),
    "memory that outlives it": (lambda v: KEPT.append(v.here + 1), "outlives it"),
    "a number of the host": (lambda v: v.here.add_(torch.tensor(2.0)), "takes a host's scalar"),
    "two GPUs in one operation": (lambda v: v.here.copy_(v.elsewhere), "mixes GPUs"),
    "work of another GPU": (lambda v: v.elsewhere.add_(1), "work of GPU 1 in a capture of GPU 0"),
    "an event": (lambda _: torch.cuda.Event().record(), "an event is recorded"),
    "a kernel of another GPU": (
        lambda v: embed(v.elsewhere.int(), v.table, v.rows, 4), "is launched on another GPU than tokens is on"
    ),
    "a kernel of main memory": (lambda v: embed(v.pageable.int(), v.table, v.rows, 4), "tokens in main memory"),
}  # fmt: skip
EAGERLY: dict[str, tuple[Callable[[Values], object], str]] = {
    "from pageable memory": (lambda v: v.here.copy_(v.pageable, non_blocking=True), "pageable memory"),
    "pinned memory is read too early": (
        lambda v: (v.pinned.copy_(v.here, non_blocking=True), v.pinned.sum()), "before it is written"
    ),
    "a list of it is made too early": (
        lambda v: (v.pinned.copy_(v.here, non_blocking=True), v.pinned.tolist()), "before it is written"
    ),
    "pinned memory is used again too early": (
        lambda v: (v.here.copy_(v.pinned, non_blocking=True), v.pinned.fill_(1)), "before it is read"
    ),
    "a launch with another GPU as the current one": (
        lambda v: embed(v.elsewhere.int(), v.table, v.rows, 4), "is launched on another GPU than tokens is on"
    ),
}  # fmt: skip


def found(fake: FakeTorch, words: str) -> bool:
    return any(words in problem for problem in fake.runtime.problems)


@pytest.mark.parametrize("fault", IN_A_CAPTURE)
def test_what_a_capture_forbids_is_found(fault: str) -> None:
    body, words = IN_A_CAPTURE[fault]
    with fake_torch(2) as fake:
        values = Values()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream(FIRST)):
            graph.capture_begin()
            body(values)
            graph.capture_end()
        assert found(fake, words), fake.runtime.problems
    KEPT.clear()


@pytest.mark.parametrize("fault", EAGERLY)
def test_what_the_host_does_too_early_is_found(fault: str) -> None:
    body, words = EAGERLY[fault]
    with fake_torch(2) as fake:
        body(Values())
        assert found(fake, words), fake.runtime.problems


def test_a_capture_on_the_stream_of_another_gpu_is_found() -> None:
    """As torch's own stream for captures is for all GPUs but the first one that was captured on."""
    with fake_torch(2) as fake:
        graphs = Graphs(FIRST, [])
        graphs._stream = torch.cuda.Stream(SECOND)
        values = Values()
        graphs.run("x", lambda: values.here.add_(1))
        assert found(fake, "work of GPU 0 in a capture of GPU 1")


def test_what_is_allowed_is_no_fault() -> None:
    with fake_torch(2, computes=True) as fake:
        values = Values()
        graphs = Graphs(FIRST, [values.here])

        def body() -> None:
            values.here.add_(1)
            torch.add(values.here, values.here + 1, out=values.here)
            values.pinned.copy_(values.here, non_blocking=True)

        done = torch.cuda.Event()
        for _ in range(2):
            graphs.run("x", body)
        done.record()
        assert not done.query()
        done.synchronize()
        assert values.pinned.tolist() == [9.0] * 8  # 0 -> 3 -> 9
        send([1, 2], values.whole[1:3])
        send([7, 8], values.whole[1:3])
        assert values.whole.tolist() == [0, 7, 8, 0, 0, 0, 0, 0]
        assert values.here.sum().item() == 72.0
        assert not fake.runtime.problems


def test_work_outside_of_graphs_is_done_between_those_of_its_body() -> None:
    """Such as a copy to another GPU, which a capture forbids; a replay does all of it again."""
    with fake_torch(2, computes=True) as fake:
        values = Values()
        graphs = Graphs(FIRST, [values.here])

        def body() -> None:
            graphs.outside(lambda: values.elsewhere.copy_(values.here))
            values.here.add_(1)
            graphs.outside(lambda: values.elsewhere.add_(values.elsewhere))
            graphs.outside(lambda: values.here.copy_(values.elsewhere))
            values.here.add_(1)

        for expected in (1.0, 3.0, 7.0):
            graphs.run("x", body)
            assert values.here.tolist() == [expected] * 8
        assert (len(graphs), len(fake.runtime.captures), dict(fake.runtime.problems)) == (1, 4, {})


def test_memory_that_runs_out_in_a_capture_says_so_and_leaves_no_capture() -> None:
    """Not the error of the broken capture, after which a process would end its GPU."""
    with fake_torch() as fake:
        values = torch.zeros(1024, device=FIRST)
        graphs = Graphs(FIRST, [values])
        fake.runtime.left = 1024
        with pytest.raises(torch.OutOfMemoryError) as caught:
            graphs.run("x", lambda: values.copy_(values + 1))
        assert ran_out(caught.value)
        assert not is_gpu_failure(caught.value)
        assert (len(graphs), fake.runtime.capture, fake.runtime.streams) == (0, None, {})
        fake.runtime.left = None
        graphs.run("x", lambda: values.copy_(values + 1))
        assert (len(graphs), dict(fake.runtime.problems)) == (1, {})


@pytest.mark.parametrize("at", ["begin", "end"])
def test_a_capture_that_fails_leaves_what_a_body_advances(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And work between two graphs is run by bodies without a graph."""
    with fake_torch(2, computes=True) as fake:
        values, between = Values().here, list[None]()
        graphs = Graphs(FIRST, [values])

        def body() -> None:
            values.add_(1)
            graphs.outside(lambda: between.append(None))

        def fail(*_: object, **__: object) -> None:
            fake.runtime.capture = None
            raise torch.AcceleratorError("CUDA error: out of memory")

        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda.CUDAGraph, f"capture_{at}", fail)
            for runs in (1, 2):
                graphs.run_where_room("x", body)
                assert values.tolist() == [float(runs)] * 8
                assert len(between) == runs + 1, "in the trial run, too"
        graphs.run("y", body)
        assert values.tolist() == [3.0] * 8


# The device path


def test_a_pair_at_real_shapes_is_captured_without_fault() -> None:
    """Every graph of an 8B target and its draft, on the second of two GPUs while the first one is the current one."""
    with fake_torch(2) as fake:
        runner = prepared(pair(PUBLISHED["llama-3.1-8b"].cut(LAYERS), 8192, SECOND))
        executor = runner.executor
        assert isinstance(executor, DeviceExecutor)
        assert not fake.runtime.problems
        assert "swift" in runner.drafters
        assert len(fake.runtime.captures) == len(executor.graphs) > 20
        assert {capture.gpu for capture in fake.runtime.captures} == {1}
        assert all(capture.launches for capture in fake.runtime.captures)
        # One pass of a chain for all verdicts: nine launches a layer, three beside them, and three for a verdict, where
        # torch sets the number of the node to 0.
        captured = executor.graphs._graphs
        views = {"detach", "prim", "select", "slice", "unbind", "view"}
        verify, judge = (cast(Graph, captured[key][0]) for key in (("verify", 8, False), ("judge", 8, "chain")))
        assert (len(verify.launches), len(judge.launches)) == (9 * LAYERS + 3, 3)
        assert not set(verify.operations) - views
        assert set(judge.operations) - views == {"zero_"}
        assert judge.operations["zero_"] == 1
        assert len(cast(Graph, executor.graphs._graphs["early-exit", 1, 1][0]).launches) == 9 + 5, "of one layer"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target of one layer and a draft that often agrees."""
    root = tmp_path_factory.mktemp("lazily")
    target = checkpoint(root / "target", **SHAPE | {"num_hidden_layers": 1})
    return target, perturbed(root / "draft", target, 0.05)


def tiny_decoder(folder: Path, device: torch.device) -> DeviceDecoder:
    opened = Checkpoint.open(folder)
    return DeviceDecoder(opened.config, load(opened, None, device, torch.float32), CONTEXT, device, torch.float32)


def tiny_runner(folders: tuple[Path, Path], device: torch.device) -> Runner:
    target, draft = (tiny_decoder(folder, device) for folder in folders)
    return device_runner(target, draft, VOCAB, device)


STRATEGIES = {"plain": 0, "draft": 4, "draft-tree": 4, "lookup": 3}


def texts(runner: Runner) -> dict[str, list[int]]:
    return {name: write(runner, name, length, SAMPLINGS["sampled"], tokens=5) for name, length in STRATEGIES.items()}


@pytest.fixture(scope="module")
def at_once(tiny: tuple[Path, Path]) -> dict[str, list[int]]:
    """What is written where all is computed when it is asked for."""
    return texts(tiny_runner(tiny, HOST))


def test_what_is_computed_once_it_is_waited_for_is_the_same(
    tiny: tuple[Path, Path], at_once: dict[str, list[int]]
) -> None:
    with fake_torch(2, computes=True) as fake:
        assert texts(tiny_runner(tiny, SECOND)) == at_once
        assert not fake.runtime.problems
        assert not fake.runtime.queues[0].asked, "the GPU that nobody chose"


def test_a_spin_before_each_wait_is_bounded_and_changes_nothing(
    tiny: tuple[Path, Path], at_once: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device does nothing before the host sleeps, so that every spin here is in vain and takes its whole time."""
    queries, waits, microseconds = [0], list[int](), count()
    query, wait = Event.query, SpinWait.wait

    def counted(event: Event) -> bool:
        queries[0] += 1
        return query(event)

    def noted(waiting: SpinWait, event: PassEnd) -> None:
        queries[0] = 0
        wait(waiting, event)
        waits.append(queries[0])

    monkeypatch.setattr(Event, "query", counted)
    monkeypatch.setattr(SpinWait, "wait", noted)
    for module in (clock_module, drafting):
        monkeypatch.setattr(module, "SpinWait", lambda: SpinWait(lambda: next(microseconds) / 1e6))
    with fake_torch(1, computes=True) as fake:
        written = write(tiny_runner(tiny, FIRST), "draft", 4, SAMPLINGS["sampled"], tokens=5)
        assert written == at_once["draft"]
        assert not fake.runtime.problems
    assert 1 < max(waits) < SPIN_S * 1e6


def test_what_fails_on_the_gpu_comes_out_where_the_host_waits(tiny: tuple[Path, Path]) -> None:
    with fake_torch(1, computes=True) as fake:
        runner = tiny_runner(tiny, FIRST)
        runner.target.begin([1, 2, 3])
        reply, drafter = runner.reply(SAMPLINGS["greedy"], [1, 2, 3], ()), runner.drafters["draft"]
        drafter.begin([1, 2, 3])
        reply.step(drafter, 4, "coupled")

        def fail() -> None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        fake.runtime.queues[0].work.append(fail)
        with pytest.raises(RuntimeError) as caught:
            reply.step(drafter, 4, "coupled")
        assert is_gpu_failure(caught.value)


def test_every_feature_of_a_recipe_is_captured_as_it_is_launched(tmp_path: Path) -> None:
    """Norms after sub-layers and over all heads, factors, a layer that does not turn."""
    folder = checkpoint(tmp_path / "target", **changes("olmo2"))
    draft = perturbed(tmp_path / "draft", folder, 0.05)

    def decoder(folder: Path, device: torch.device) -> DeviceDecoder:
        opened = Checkpoint.open(folder)
        first, last = (replace(layer, residual=0.6) for layer in opened.config.recipe.layers)
        layers = first, replace(last, mixer=replace(last.mixer, rope=None, scale=0.4))
        recipe = replace(opened.config.recipe, layers=layers, embed_scale=3.0, logit_scale=0.7)
        opened = replace(opened, config=replace(opened.config, recipe=recipe))
        return DeviceDecoder(opened.config, load(opened, None, device, torch.float32), CONTEXT, device, torch.float32)

    def text(device: torch.device) -> list[int]:
        runner = device_runner(decoder(folder, device), decoder(draft, device), VOCAB, device)
        return write(runner, "draft-tree", 3, SAMPLINGS["sampled"], tokens=3)

    at_once = text(HOST)
    with fake_torch(2, computes=True) as fake:
        assert text(SECOND) == at_once
        assert not fake.runtime.problems


@pytest.mark.rotated(3)
@pytest.mark.parametrize("strategy", ["plain", "draft", "lookup"])
def test_replies_with_log_probabilities_launch_nothing_outside_graphs(strategy: str, tiny: tuple[Path, Path]) -> None:
    """Once each number of rows was captured; those under a grammar take the same passes."""
    prompt = [5, 6, 7, 5, 6]

    def text(runner: Runner) -> list[int]:
        runner.target.keep(0)
        runner.target.begin(list(prompt))
        runner.drafters[strategy].forget()
        runner.drafters[strategy].begin(list(prompt))
        reply = runner.reply(SAMPLINGS["sampled"], list(prompt), (), top=2)
        assert runner.executor_of(None, 2) is runner.stepwise
        while len(reply.committed) < len(prompt) + 6:
            reply.step(runner.drafters[strategy], STRATEGIES[strategy], "coupled")
        reply.close()
        return reply.committed[len(prompt) :][:6]

    at_once = text(tiny_runner(tiny, HOST))
    with fake_torch(1, computes=True) as fake:
        runner = tiny_runner(tiny, FIRST)
        assert text(runner) == at_once
        launched = len(fake.launches)
        assert launched
        assert text(runner) == at_once
        assert len(fake.launches) == launched
        assert not fake.runtime.problems


class Turns(SteppedConstraint):
    """Even tokens and odd ones in turn; notes whether a pass was under way as it found each of its masks."""

    def __init__(self, under_way: Callable[[], bool]) -> None:
        super().__init__()
        self._under_way, self._depth = under_way, 0
        self.found: list[bool] = []

    def _goes_on(self, token: int) -> bool:
        fits = token % 2 == self._depth % 2
        self._depth += fits
        return fits

    def _ends(self, token: int) -> bool:
        return False

    def _go_back(self) -> None:
        self._depth -= 1

    def _found(self, words: int) -> Allowed:
        self.found.append(self._under_way())
        return np.full(words, 0xAAAAAAAA if self._depth % 2 else 0x55555555, np.uint32)

    def forced(self, limit: int) -> list[int]:
        return []


@pytest.mark.parametrize("strategy", ["plain", "lookup"])
def test_the_masks_of_a_grammar_are_found_while_a_pass_runs(strategy: str, tiny: tuple[Path, Path]) -> None:
    """A step launches nothing outside graphs, and copies its logits to the host once."""
    prompt = [5, 6, 7, 6, 7, 6, 7]

    def text(runner: Runner, constraint: Turns) -> tuple[list[int], int]:
        runner.target.keep(0)
        runner.target.begin(list(prompt))
        runner.drafters[strategy].begin(list(prompt))
        reply = runner.reply(SAMPLINGS["penalised"], list(prompt), (), constraint=constraint)
        steps = [reply.step(runner.drafters[strategy], 3, "coupled") for _ in range(4)]
        reply.close()
        assert any(step.drafted for step in steps) == (strategy == "lookup")
        return reply.committed[len(prompt) :], len(steps)

    at_once, _ = text(tiny_runner(tiny, HOST), Turns(lambda: True))
    assert [token % 2 for token in at_once] == [place % 2 for place in range(len(at_once))]
    with fake_torch(1, computes=True) as fake:
        runner = tiny_runner(tiny, FIRST)
        for once in (False, True):
            constraint = Turns(lambda: bool(fake.runtime.queues[0].work))
            launched, copied = len(fake.launches), len(fake.to_host)
            made, steps = text(runner, constraint)
            assert made == at_once
            assert len(constraint.found) >= steps
            assert all(constraint.found)
            assert len(fake.to_host) - copied == steps
            assert (len(fake.launches) > launched) != once
        assert not fake.runtime.problems


FULL = [torch.OutOfMemoryError("CUDA out of memory."), torch.AcceleratorError("CUDA error: out of memory")]
"""Of torch's allocator, and of a graph's own memory."""


@pytest.mark.parametrize("error", FULL, ids=["allocated", "own"])
def test_passes_that_cannot_be_captured_for_want_of_memory_run_eagerly(
    error: RuntimeError, tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[object]()

    def full(_: Graphs, body: object) -> None:
        tried.append(body)
        raise error

    with fake_torch(1, computes=True) as fake:
        model = tiny_runner(tiny, FIRST).target.model
        assert isinstance(model, DeviceModel)
        captured = model.next_logits(5, 0)
        model._graphs.forget()
        monkeypatch.setattr(Graphs, "_capture", full)
        for _ in range(2):
            assert torch.equal(model.next_logits(5, 0), captured)
        assert len(tried) == 1, "it was tried in vain at each pass"
        assert not fake.runtime.problems


def test_a_table_of_inputs_is_read_in_main_memory(tmp_path: Path) -> None:
    """In captures too; its memory is unlocked when it is released, and a system that does not lock it says so."""
    folder = checkpoint(tmp_path / "target", **changes("gemma4_e") | {"tie_word_embeddings": True})

    def text(device: torch.device) -> list[int]:
        runner = device_runner(tiny_decoder(folder, device), None, VOCAB, device)
        return write(runner, "lookup", 3, SAMPLINGS["sampled"], tokens=3)

    at_once = text(HOST)
    with fake_torch(2, computes=True) as fake:
        model = tiny_decoder(folder, SECOND)
        table = model.weights.rows
        assert table is not None
        assert [*fake.locked] == [table.data_ptr()]
        assert not table.data_ptr() % PAGESIZE
        assert 0 <= fake.locked[table.data_ptr()] - table.nbytes < PAGESIZE
        del model, table
        assert not fake.locked
        assert text(SECOND) == at_once
        assert not fake.runtime.problems
        fake.lockable = 0
        with pytest.raises(ModelError, match=r'CUDA error 2.*device = "cpu"'):
            tiny_decoder(folder, SECOND)


TABLES: dict[str, Callable[[Path], Path]] = {
    "inputs of layers": lambda path: checkpoint(path / "m", **changes("gemma4_e")),
    "embeddings": lambda path: checkpoint(path / "m", **SHAPE | {"tie_word_embeddings": False}),
    "embeddings in blocks": lambda path: written(path / "m.gguf", *FILES["dense"]),
}


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=[pytest.mark.needs_gguf] * ("blocks" in one)) for one in TABLES]
)
def test_a_table_that_the_system_does_not_lock_lies_on_the_gpu(kind: str, tmp_path: Path) -> None:
    """With the same text, and as many bytes as are planned."""
    opened = Checkpoint.open(TABLES[kind](tmp_path))
    planned = plan(Model(opened.config, "cuda", opened.quant, opened.format), None, CONTEXT)
    moved = planned.changed(lambda model: replace(model, tables_on_gpu=True))

    def text(model: DeviceDecoder) -> list[int]:
        return write(device_runner(model, None, VOCAB, FIRST), "plain", 0, SAMPLINGS["greedy"], tokens=2)

    def loaded(chosen: Plan) -> DeviceDecoder:
        pair = PairSpec("p", "P", ModelSource(path=str(opened.folder)))
        model = load_runner(pair, opened, None, chosen, lambda: None, None).target.model
        assert isinstance(model, DeviceModel)
        return model.decoder

    with fake_torch(1, computes=True) as fake:
        before, table = loaded(planned), planned.locked
        assert sum(fake.locked.values()) >= table > 0
        held, written = before.memory(), text(before)
        del before
        fake.lockable = 0
        after = loaded(moved)
        assert text(after) == written
        assert after.memory() - held == table == moved.need("cuda").total - planned.need("cuda").total
        assert (moved.locked, moved.need("cpu").total, planned.need("cpu").total) == (0, 0, table)
        assert not fake.runtime.problems


def test_as_much_is_locked_as_the_system_lets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried, and leaves nothing behind: neither locked memory nor an error."""
    mib = 1 << 20
    with fake_torch() as fake:
        assert lockable(3 * mib, FIRST) == 3 * mib
        fake.lockable = mib
        assert lockable(4 * mib, FIRST) == lockable(2 * mib, FIRST) == mib
        room = roomy(mib, FIRST)
        assert fake.locked
        del room
        assert not fake.locked
        monkeypatch.setattr(page_locked, "MOST_TRIED", mib)
        assert lockable(4 * mib, FIRST) == 4 * mib, "a system without a small limit"
        fake.lockable = 0
        assert lockable(4 * mib, FIRST) == 0
        assert len(roomy(mib, FIRST)) == mib, "copies take longer"
        torch.ones(1, device=FIRST)
        assert not fake.locked


@pytest.mark.slow
def test_experts_are_captured_as_they_are_launched(tmp_path: Path) -> None:
    """With norms apart, beside an MLP; how many tiles there are changes from replay to replay."""
    folder = checkpoint(tmp_path / "target", **changes("gemma4_moe"))
    folders = folder, perturbed(tmp_path / "draft", folder, 0.05)

    def text(device: torch.device) -> list[int]:
        return write(tiny_runner(folders, device), "draft-tree", 3, SAMPLINGS["sampled"], tokens=3)

    at_once = text(HOST)
    with fake_torch(2, computes=True) as fake:
        assert text(SECOND) == at_once
        assert not fake.runtime.problems


@pytest.mark.slow
def test_recurrent_layers_are_captured_as_they_are_launched(tmp_path: Path) -> None:
    """Over several replies: states are set back before each."""
    folder = checkpoint(tmp_path / "target", **recurrent("linear_attention", "full_attention"))
    draft = perturbed(tmp_path / "draft", folder, 0.05)

    def text(device: torch.device) -> list[list[int]]:
        runner = device_runner(*(made(one, device=device) for one in (folder, draft)), VOCAB, device)
        drafted = [("draft", 4), ("draft-tree", 3), ("plain", 0)]
        return [write(runner, name, length, SAMPLINGS["sampled"], tokens=4) for name, length in drafted]

    at_once = text(HOST)
    assert at_once == 3 * at_once[:1]
    with fake_torch(2, computes=True) as fake:
        assert text(SECOND) == at_once
        assert not fake.runtime.problems


def test_a_pair_is_loaded_to_the_gpu_that_was_chosen(tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHOSEN, "index", 1)
    target, pair = Checkpoint.open(tiny[0]), PairSpec("p", "P", ModelSource(path=str(tiny[0])))
    with fake_torch(2, computes=True) as fake:
        planned = plan(Model(target.config, "cuda"), None, CONTEXT)
        runner = load_runner(pair, target, None, planned, lambda: None, None)
        assert runner.passes is None, "it leaves no memory"
        assert load_runner(pair, target, None, planned.leaving(1 << 30), lambda: None, None).passes is not None
        write(runner, "plain", 0, SAMPLINGS["greedy"], tokens=2)
        assert not fake.runtime.problems
        assert [bool(queue.asked) for queue in fake.runtime.queues] == [False, True]


def test_a_verdict_that_is_read_before_it_is_there_is_noticed(
    tiny: tuple[Path, Path], at_once: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_torch(1, computes=True):
        runner = tiny_runner(tiny, FIRST)
        assert write(runner, "plain", 0, SAMPLINGS["sampled"], tokens=5) == at_once["plain"]
        monkeypatch.setattr(Clock, "wait", lambda _: (1.0, 1.0))
        assert write(runner, "plain", 0, SAMPLINGS["sampled"], tokens=5) != at_once["plain"]


@pytest.mark.parametrize("kind", ["attention", "recurrent"])
def test_replies_in_company_are_captured(kind: str, tiny: tuple[Path, Path], tmp_path: Path) -> None:
    """With the launches of one row, and those of attention for each more."""

    def runner(device: torch.device) -> Runner:
        if kind == "attention":
            return device_runner(tiny_decoder(tiny[0], device), None, VOCAB, device, room=1 << 30)
        return device_runner(made(folder, device=device), None, VOCAB, device, room=1 << 30)

    folder = tmp_path / "target"
    if kind == "recurrent":
        checkpoint(folder, **recurrent("linear_attention", "full_attention"))
    prompts = [[5, 6, 7, 5, 6], [9, 8], [3, 3, 3]]
    expected = alone(runner(HOST), prompts, 5)
    with fake_torch(2, computes=True) as fake:
        on_gpu = runner(SECOND)
        assert [reply.committed for reply, *_ in in_company(on_gpu, prompts)] == expected
        assert not fake.runtime.problems
        assert on_gpu.passes is not None
        ((captured,),) = cast(DeviceTexts, on_gpu.passes.model)._graphs._graphs.values()
        if kind == "attention":
            assert len(cast(Graph, captured).launches) == 9 + 3 + 2 * 3
