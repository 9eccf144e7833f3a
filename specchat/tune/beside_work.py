"""Work of a command beside a program: its places, and the one that runs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from specchat.dataclass import dataclass

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.tune.beside import BesideCommand


@dataclass(frozen=True)
class TuningPlaces:
    """The folder of drafts tuned beside the chat, and how commands for them are run."""

    shelf: Path
    """Folder of what was tuned."""
    order: Path
    """File of the tune that runs."""
    toml: Path
    """The models.toml that pairs are changed in."""
    run: "Callable[[Sequence[str]], BesideCommand]"
    """Starts a command of specchat; raises OSError where it cannot be."""
    options: Sequence[str] = ()
    """Options that name the models.toml, where it is not the usual one."""


class BesideWork(ABC):
    """The command that runs, for the pair of the id `pair`."""

    NAME: ClassVar[str]
    """A word for it."""

    def __init__(self, places: TuningPlaces | None) -> None:
        """Without `places` nothing can be done."""
        self.places = places
        self.job: BesideCommand | None = None
        self.pair = ""

    @property
    def busy(self) -> bool:
        return self.job is not None and self.job.busy

    def __str__(self) -> str:
        """The progress in words; empty where nothing runs."""
        job = self.job
        if job is None or not job.busy:
            return ""
        return f"the {self.NAME} is stopping" if job.state == "stopping" else self.doing(job)

    @abstractmethod
    def doing(self, job: "BesideCommand") -> str:
        """The progress of a job that goes on, in words."""

    def pause(self, paused: bool) -> None:
        if self.job is not None:
            self.job.pause(paused)

    def stop(self) -> None:
        """End the command; its results so far stay."""
        if self.job is not None:
            self.job.stop()

    def close(self) -> None:
        """End it with the program."""
        if self.job is not None:
            self.job.kill()
