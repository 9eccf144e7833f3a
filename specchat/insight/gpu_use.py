"""The use of the GPU that the loaded pair runs on: what to show of it, and what of it slows replies."""

from collections.abc import Callable
from threading import Thread

from specchat import figures
from specchat.dataclass import dataclass
from specchat.engine.hardware.gpu_counters import Counters, CountersError, Reading

_IDLE_LOOKS = 2
"""Looks in a row at an idle engine after which no sample of the counters has a reply in it."""
_BUSY = 0.25
"""Share of the time above which other programs are worth a word: drawing a desktop takes less."""
_LITTLE = 512 << 20
"""Bytes of free memory below which other programs make the driver move memory about, or a load fail."""


@dataclass(frozen=True)
class GpuUse:
    """`reading` is the latest, `others` the share of time that the GPU was busy when last seen without a reply."""

    reading: Reading | None = None
    others: float | None = None

    @property
    def words(self) -> str:
        """`62 % · 3.1 GiB free`; empty where nothing was read."""
        read = self.reading
        return f"{figures.percent(read.busy, 1)} · {figures.memory(read.free)} free" if read is not None else ""

    @property
    def trouble(self) -> str:
        """Measured cause of slow replies, in words; empty where there is none."""
        found = []
        if self.others is not None and self.others >= _BUSY:
            found.append(f"other programs keep the GPU {figures.percent(self.others, 1)} busy")
        if self.reading is not None and self.reading.free < _LITTLE:
            found.append(f"only {figures.memory(self.reading.free)} of the GPU's memory is free")
        return ", ".join(found)


NO_USE = GpuUse()


class GpuWatch:
    """Reads the counters once a look, beside the app: a driver that hangs holds up neither it nor its end."""

    def __init__(self, counters: Callable[[str], Counters] = Counters) -> None:
        self._open = counters
        self._gpu = ""
        self._forget()
        self._told = set[str]()

    def _forget(self) -> None:
        self.use = NO_USE
        self._counters: Counters | None = None
        self._thread: Thread | None = None
        self._read: Reading | CountersError | None = None
        self._idle = self._idle_then = 0

    def look(self, gpu: str, *, idle: bool) -> str:
        """Take what was read since the last look into `use`, and begin to read anew.

        Args:
            gpu: the UUID of the GPU that the loaded pair runs on, empty where it runs on none or none is loaded.
            idle: no reply is written.

        Returns:
            why the counters cannot be read, in a sentence, once; empty otherwise.
        """
        if gpu != self._gpu:
            self._gpu = gpu
            self._forget()
        self._idle = self._idle + 1 if idle else 0
        if not gpu or (self._thread is not None and self._thread.is_alive()):
            return ""
        if isinstance(self._read, CountersError):
            self.use = NO_USE
            return self._once(f"GPU use is not shown: its counters cannot be read ({self._read})")
        if self._read is not None:
            others = self._read.busy if self._idle_then >= _IDLE_LOOKS else self.use.others
            self.use = GpuUse(self._read, others)
        self._idle_then = self._idle
        self._thread = Thread(target=self._look, args=(gpu,), name="gpu counters", daemon=True)
        self._thread.start()
        return ""

    def _look(self, gpu: str) -> None:
        """In a thread."""
        try:
            counters = self._counters or self._open(gpu)
            read: Reading | CountersError = counters.read()
        except CountersError as error:
            read = error
        else:
            if gpu == self._gpu:
                self._counters = counters
        if gpu == self._gpu:
            self._read = read

    def _once(self, sentence: str) -> str:
        fresh = sentence not in self._told
        self._told.add(sentence)
        return sentence if fresh else ""
