"""What holds for every test: where kernels run, how long tests may take, and how workers share them."""

import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from specchat.chat import store as chat_store
from specchat.chat.store import Store

DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/usr/lib/wsl/lib/libcuda.so.1"))
"""What shows an NVIDIA driver, of Linux itself and of Windows below WSL2."""
MISSING = [name for name in ("llama_cpp", "gguf") if find_spec(name) is None]
"""Packages of GGUF files that are not installed."""
LONG = (
    "tests/tui/test_own_model.py",
    "tests/tune/test_on_a_gpu.py",
    "tests/kernels/test_recorded.py",
    "tests/cpu/test_block_models.py",
    "tests/cli/test_tune_on_a_gpu.py",
    "tests/gpu_net/test_captured_heads.py",
    "tests/cpu/test_decoder.py",
    "tests/tui/test_hostile.py",
    "tests/tui/test_real.py",
    "tests/tui/test_trouble.py",
    "tests/device/test_decoding.py",
    "tests/device/test_heads.py",
    "tests/cpu/test_compiled.py",
    "tests/device/test_trees.py",
    "tests/gpu_net/test_steps.py",
    "tests/gpu_net/test_addresses.py",
    "tests/gpu_net/test_fake_cuda.py",
    "tests/device/test_recurrent.py",
    "tests/device/test_windows.py",
    "tests/kernels/test_delta.py",
    "tests/cpu/test_experts.py",
    "tests/test_measure_gpu.py",
    "tests/engine/test_check.py",
    "tests/engine/test_demo.py",
    "tests/kernels/test_products.py",
    "tests/engine/test_hub.py",
    "tests/tui/test_kill.py",
    "tests/device/test_compile.py",
    "tests/engine/test_memory.py",
    "tests/tune/test_trainees.py",
    "tests/gpu_checks/test_checks.py",
    "tests/golden/test_bits.py",
)
"""Files whose few tests take long: who came to one of them last would end alone."""
GARBAGE = 20_000
"""Objects after which Python searches them for garbage; 700 by itself."""
FEW_CORES = 3
"""Up to so many cores, a worker more than there are fills the time in which one waits for what it started."""
DISK_S = 60.0
"""Seconds after which a disk is taken to hang."""
GPU_TEST_S = 1800
"""Seconds that a test on a GPU may take: the first one compiles every kernel."""


def gpu_at_hand(environ: Mapping[str, str], torch: str, drivers: tuple[Path, ...] = DRIVERS) -> bool:
    """Whether this version of torch will find a GPU, told without the seconds that importing it takes."""
    hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and not torch.endswith("+cpu") and any(driver.exists() for driver in drivers)


def compile_alone(compiles: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's compiler, with which one worker at a time compiles a function: one that waits then finds it compiled.

    Functions that are in no file have no lock. The compiler's own lock comes first, else threads of two processes could
    each hold what another needs. The lock is the process's, not the thread's.
    """
    from numba.core.compiler_lock import global_compiler_lock

    folder = Path(os.environ["NUMBA_CACHE_DIR"]) / "locks"
    folder.mkdir(parents=True, exist_ok=True)

    @functools.cache
    def lock(name: str) -> FileLock:
        return FileLock(folder / name, poll_interval=0.005, thread_local=False)

    @functools.wraps(compiles)
    def alone(compiled: Any, *arguments: Any) -> Any:
        if compiled._cache.cache_path is None:
            return compiles(compiled, *arguments)
        with global_compiler_lock, lock(compiled._cache._impl.filename_base):
            return compiles(compiled, *arguments)

    return alone


# No example has to be quick, for the machine may stand still in any; by default they are the same in every run.
for profile, same in (("same", True), ("explore", False)):
    settings.register_profile(
        profile, deadline=None, derandomize=same, suppress_health_check=[HealthCheck.too_slow], print_blob=not same
    )
settings.load_profile("same")

# Triton's decorator decides at import.
if not gpu_at_hand(os.environ, version("torch")):
    os.environ["TRITON_INTERPRET"] = "1"

# Tests speak with this machine alone, and look the same everywhere: the user's proxies, mirrors, tokens and tastes are
# none of theirs. The plugin of snapshots tells its workers its folder so.
for name in set(os.environ) - {"TEXTUAL_SNAPSHOT_TEMPDIR"}:
    if name.lower().endswith("_proxy") or name.startswith(("HF_", "TEXTUAL_")) or name in ("NO_COLOR", "FORCE_COLOR"):
        del os.environ[name]

# Nothing that a test starts is left behind.
os.environ["SPECCHAT_ENGINE_MINUTES"] = "0"

# A shell's background job ignores it, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Else every process of the tests compiles for seconds.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))

# Else every process of the tests compiles every module.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Else bitsandbytes has what it computes on a processor compiled first, for ten seconds.
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

# Processes that each multiply with every core hold each other up at every product.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Else what is imported is searched for garbage again and again: a quarter of the time that reading all tests takes.
    gc.disable()
    from numba.core.ccallback import CFunc
    from numba.core.dispatcher import Dispatcher

    # Else workers that find nothing compiled all compile the same.
    for compiled in (CFunc, Dispatcher):
        compiled.compile = compile_alone(compiled.compile)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """How many workers there are unless `-n` or the environment names a number; None where xdist is to say."""
    cores = os.cpu_count() or 1
    asked = "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ
    return None if asked or not 1 < cores <= FEW_CORES else cores + 1


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every other worker read files from the last one on: two at a file would both compile it."""
    report = yield
    if isinstance(collector, pytest.Directory) and os.environ.get("PYTEST_XDIST_WORKER", "")[-1:] in tuple("13579"):
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker takes a whole file, whose fixtures it makes once; tests that measure time go one after another.

    So do tests on a GPU, which has the memory for one of them. Files of the most tests come first but for `LONG`.
    """
    groups = dict[str, list[pytest.Item]]()
    # In whatever order files were read.
    for item in sorted(items, key=lambda item: item.nodeid.partition("::")[0]):
        if item.get_closest_marker("gpu") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(GPU_TEST_S))
        alone = next((name for name in ("gpu", "timed") if item.get_closest_marker(name) is not None), None)
        group = alone or item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)
    if "PYTEST_XDIST_WORKER" in os.environ:
        first = [group for group in LONG if group in groups]
        others = sorted(groups.keys() - set(LONG), key=lambda group: (-len(groups[group]), group))
        items[:] = [item for group in (*first, *others) for item in groups[group]]


def in_turn(cases: Sequence[Sequence[str]], every: int, first: int = 0) -> list[bool]:
    """Which cases are among the ones in `every` that run by default; each has a name for each of its parameters.

    Along each parameter one value in so many has its turn, and others beside each value of another parameter.
    """
    values = [list(dict.fromkeys(names)) for names in zip(*cases, strict=True)]
    places = (sum(map(list.index, values, case)) for case in cases)
    return [place % every == first for place in places]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Cases of a `rotated` test are slow but for those whose turn it is among what is not slow anyway."""
    made = yield
    cases = [one for one in made if not one.get_closest_marker("slow")] if isinstance(made, list) else []
    rotated = cases and cases[0].get_closest_marker("rotated")
    if rotated:
        turns = in_turn([one.callspec._idlist for one in cases], *rotated.args)
        for one, turn in zip(cases, turns, strict=True):
            # Where there are too few for any to have its turn, all run.
            if any(turns) and not turn:
                one.add_marker(pytest.mark.slow)
    return made


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that need both packages of GGUF files have the mark `needs_llama`, of the writer alone `needs_gguf`."""
    marks = {mark.name for mark in item.iter_markers()}
    if missing := [name for name in MISSING if "needs_llama" in marks or f"needs_{name}" in marks]:
        reason = f"needs {' and '.join(missing)}: pip install 'specchat[gguf]'"
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Nothing that was imported is garbage, among which each search for some would take a second.

    Apps and interpreted kernels make so many objects that Python would search every few milliseconds.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 100)
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_is_kept_from_test_to_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands name these files for the engines that they start, and so for all of their process."""
    for name in ("SPECCHAT_GPU_FILE", "SPECCHAT_LEARNT_FILE", "SPECCHAT_READ_FOLDER"):
        monkeypatch.setenv(name, "")


@pytest.fixture(autouse=True)
def no_step_is_slipped_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one is goes by the clock; tests of drafts compare them step by step. `test_yardstick.py` tests it."""
    if not request.module.__name__.endswith("test_yardstick"):
        for name in ("due", "repeats"):
            monkeypatch.setattr(f"specchat.engine.decoding.yardstick.Yardstick.{name}", lambda _: False)


@pytest.fixture(autouse=True)
def no_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt is safe, or known not to be, before it shows as sent; a user would be told of a disk that is busy."""

    def known(self: Store, change: Event) -> bool:
        end = monotonic() + DISK_S
        while not change.wait(0.002) and not self.problem and not self._writer.lock and monotonic() < end:
            pass
        return change.is_set()

    monkeypatch.setattr(Store, "_saved_soon", known)
    monkeypatch.setattr(chat_store, "CLOSE_S", DISK_S)


@pytest.fixture(autouse=True)
def chats_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Open ones have a thread and a database each, and a worker runs hundreds of tests that open some."""
    opened = list[Store]()
    open_store = Store.__init__

    def noted(self: Store, path: Path | None = None) -> None:
        open_store(self, path)
        opened.append(self)

    monkeypatch.setattr(Store, "__init__", noted)
    yield
    for store in opened:
        store.close(timeout=0.1)
