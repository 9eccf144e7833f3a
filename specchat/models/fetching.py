"""Downloads beside a chat: one at a time, looked at now and then."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specchat.config.catalog import Pair
from specchat.engine.protocol.pair import ModelSource

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.models.library import ModelPlaces
    from specchat.models.offers import Offer
    from specchat.models.pull import Task


class Fetching:
    """The download that runs, was stopped or failed, and the pair that is loaded once it is complete."""

    def __init__(self, places: "Callable[[], ModelPlaces] | None") -> None:
        """`places` gives the places of models and their source; None leaves fetching to the engine."""
        self.places = places
        self.listed: tuple[Offer, ...] = ()
        """The models as they were last looked for; empty before."""
        self.looking = False
        """They are looked for the first time, or were."""
        self.task: Task | None = None
        self.pair: Pair | None = None

    @property
    def busy(self) -> bool:
        return self.task is not None and self.task.busy

    def lacks(self, pair: Pair) -> Sequence[ModelSource]:
        """The models of `pair` that have to be fetched first."""
        if self.places is None or pair.unsupported or not any(source.repo for source in pair.spec.sources):
            return ()
        from specchat.engine.fetch.cached import absent

        return absent(self.places().hub, pair.spec.sources)

    def is_for(self, pair: Pair) -> bool:
        """True if there is a download for `pair`, whatever became of it."""
        return self.task is not None and self.pair is not None and self.pair.spec == pair.spec

    def begin(self, task: "Task", pair: Pair) -> None:
        """Fetch what `task` has ordered."""
        self.task, self.pair = task, pair
        task.start()

    def toggle(self) -> None:
        """Stop what runs; go on with what was stopped or failed."""
        if self.task is not None:
            if self.task.busy:
                self.task.stop()
            else:
                self.task.start()

    def done(self) -> Pair | None:
        """The pair whose models have all come, once, sampling as it or its makers say."""
        if self.task is None or self.task.state != "done":
            return None
        pair, self.task, self.pair = self.pair, None, None
        if pair is None or self.places is None:
            return pair
        from specchat.models.sampling import with_published_sampling

        return with_published_sampling(pair, self.places().hub)

    def failed(self) -> str:
        """Why the download failed, once; it stays, to be gone on with."""
        if self.task is None or self.task.state != "failed" or not self.task.error:
            return ""
        error, self.task.error = self.task.error, ""
        return error

    def __str__(self) -> str:
        """Progress in words; empty where nothing runs."""
        task = self.task
        if task is None or not task.busy:
            return ""
        from specchat.models import words

        doing = "stopping" if task.state == "stopping" else "downloading"
        return f"{doing} {task.name}: {words.progress(task.progress)}"

    @property
    def share(self) -> str:
        """Progress in a few cells: `27 %`, or what became of it."""
        if self.task is None:
            return ""
        return f"{100 * self.task.progress.fraction:.0f} %" if self.task.busy else self.task.state
