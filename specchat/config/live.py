"""Themes and models.toml, read again when they change while the app runs."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from specchat.config.catalog import Catalog, read_catalog
from specchat.config.errors import ConfigError
from specchat.config.paths import Paths, shipped
from specchat.config.themes import Theme, load_themes
from specchat.dataclass import dataclass

Stamp = tuple[str, int, int]


@dataclass(frozen=True)
class Reloaded:
    """The configuration after a change; `catalog` is None where models.toml cannot be used."""

    themes: Sequence[Theme]
    catalog: Catalog | None
    problems: tuple[str, ...] = ()


class LiveFiles:
    """Looks at sizes and times alone until something differs. `models` is the file named on the command line."""

    def __init__(self, paths: Paths, models: Path | None) -> None:
        self._paths = paths
        self._models = models
        self._seen = self._stamps()

    def changed(self) -> bool:
        """True if a file changed, came or went since the last call."""
        before, self._seen = self._seen, self._stamps()
        return self._seen != before

    def read(self) -> Reloaded:
        """The files' contents now; mistakes in them are told, and the contents before stay in use."""
        themes, problems = load_themes([shipped("themes"), self._paths.themes])
        try:
            catalog = read_catalog(self._paths, self._models)
        except ConfigError as error:
            return Reloaded(themes, None, (*problems, error.message))
        return Reloaded(themes, catalog, tuple(problems))

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(self._stamp_all())

    def _stamp_all(self) -> Iterator[Stamp]:
        themes: list[Path] = []
        with suppress(OSError):
            themes = sorted(self._paths.themes.glob("*.toml"))
        for path in (self._models or self._paths.models_file, *themes):
            try:
                found = path.stat()
            except OSError:
                continue
            yield str(path), found.st_mtime_ns, found.st_size
