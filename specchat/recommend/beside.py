"""The measurement of what drafts fastest, beside a chat, and its result until it is written or measured again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specchat.clean import one_line
from specchat.config.errors import ConfigError
from specchat.figures import interval
from specchat.tune.beside_work import BesideWork, TuningPlaces

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.tune.beside import BesideCommand

MINUTES = 3
Row = tuple[str, str, str, str]
"""Name, factor, its 95 % interval, and prompts, as text."""


class Recommending(BesideWork):
    """The measurement that runs, or the latest one's end; a stop leaves no result."""

    NAME = "measurement"

    def __init__(self, places: TuningPlaces | None) -> None:
        super().__init__(places)
        self.result: Mapping[str, Any] | None = None
        self.error = ""

    def begin(self, pair: str, from_chats: bool) -> None:
        """Measure the pair of that id, on the prompts of saved chats or on those that come along."""
        assert self.places is not None
        self.pair, self.result, self.error = pair, None, ""
        chats = ("--chats",) if from_chats else ()
        command = ("recommend", pair, "--json", "--dry-run", "--minutes", str(MINUTES), *chats, *self.places.options)
        try:
            self.job = self.places.run(command)
        except OSError as error:
            self.error = f"No process can be started ({error.strerror})."

    def ended(self) -> bool:
        """True once, when it has ended; `result` or `error` tells how, neither after a stop."""
        job = self.job
        if job is None or job.busy:
            return False
        self.job = None
        if job.state == "done":
            self.result = job.result
        else:
            self.error = job.error
        return True

    def doing(self, job: "BesideCommand") -> str:
        what, done = one_line(str(job.progress.get("what", "starting ...")), 60), job.progress.get("fraction")
        share = f" · {done:.0%}" if isinstance(done, float) else ""
        return f"{'recommend waits' if job.paused else 'recommend'}: {what}{share}"

    @property
    def rows(self) -> list[Row]:
        """The table of strategies."""
        return self._table("rows")

    @property
    def others(self) -> list[Row]:
        """The table of other settings, whose factor is on the best strategy's speed."""
        return self._table("others")

    def _table(self, name: str) -> list[Row]:
        found = []
        for row in (self.result or {}).get(name, ()):
            match row:
                case [str(label), float(times), float(low), float() | None as high, int(prompts), *_]:
                    found.append((one_line(label, 40), f"{times:.2f}", interval(low, high), str(prompts)))
        return found

    @property
    def lines(self) -> list[str]:
        """The decision in sentences."""
        return [one_line(str(line), 400) for line in (self.result or {}).get("lines", ())]

    @property
    def choice(self) -> tuple[str, int | None] | None:
        """The strategy and draft length to write; None where the pair has the best."""
        match (self.result or {}).get("choice"):
            case {"strategy": str(strategy), "length": int() | None as length}:
                return strategy, length
        return None

    def write(self) -> str:
        """Write the choice into models.toml, once; returns the reason where that cannot be."""
        choice, places = self.choice, self.places
        if choice is None or places is None:
            return "There is nothing to write."
        from specchat.models.declare import set_setting, set_strategy, setting_of
        from specchat.tune.registry import use
        from specchat.tune.shelf import shelved

        try:
            match (self.result or {}).get("setting"):
                case {"tuned": str(id_)}:
                    for one in shelved(places.shelf):
                        if one.id == id_:
                            use(one, places.toml)
                case {"key": str(key), "value": str(text)}:
                    set_setting(places.toml, self.pair, key, text)
                case {"key": str(key), "keys": dict(keys)}:
                    table = {**(setting_of(places.toml, self.pair, key) or {}), **keys}
                    set_setting(places.toml, self.pair, key, table)
            set_strategy(places.toml, self.pair, *choice)
        except ConfigError as error:
            return error.message
        self.result = None
        return ""
