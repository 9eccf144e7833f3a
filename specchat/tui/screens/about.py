"""The running parts: the app, the loaded pair, the machine, and why the text is exact."""

from importlib.metadata import version

from textual.content import Content

from specchat import figures
from specchat.engine.protocol.pair_info import PairInfo, ReadTexts
from specchat.tui.screens.text_dialog import TextDialog
from specchat.tui.text.lines import named

_NAME_WIDTH = 14


class AboutScreen(TextDialog):
    """A name and its words a row."""

    DIALOG_TITLE = "about"

    def __init__(self, info: PairInfo | None, loading: str, choose: str, sampling: str) -> None:
        """Take what the rows say.

        Args:
            info: the loaded pair.
            loading: the name of the pair that is being loaded, empty where none is.
            choose: the key for models.
            sampling: the pair's own sampling and its source, in words.
        """
        super().__init__()
        self._about = about(info, loading, choose, sampling)

    def rows(self, width: int) -> list[Content]:
        return [row for name, words in self._about for row in named(name, words, width, _NAME_WIDTH)]


def about(info: PairInfo | None, loading: str = "", choose: str = "", sampling: str = "") -> list[tuple[str, str]]:
    """Rows of a name and words; without a loaded pair only the app's."""
    rows = [("specchat", version("specchat"))]
    if info is None:
        words = f"{loading} is being loaded" if loading else f"no model is loaded: {choose} chooses one"
        return [*rows, ("pair", words)]
    usable = [status.name for status in info.strategies if status.available and status.name != "plain"]
    plain = info.plain.tokens_per_second
    if info.server.name:
        return [*rows, *_remote(info)]
    return [
        *rows,
        ("pair", info.name),
        ("target", f"{_parameters(info.target.parameters)} parameters"),
        ("draft", _draft(info)),
        ("device", info.load.device),
        *(("note", words) for words in (info.notes.note, info.notes.warning) if words),
        ("context", f"{figures.count(info.context)} tokens"),
        *([("sampling", sampling)] if sampling else []),
        ("memory", info.load.held),
        ("read texts", _read(info.load.read)),
        ("plain speed", f"{figures.per_second(plain)} tok/s, measured here at load" if plain else "not measured"),
        ("drafting", ", ".join(usable) or "no drafting for this pair"),
        *info.template.habits,
        ("exactness", f"Drafting cannot change the text: {info.notes.exactness}."),
    ]


def _remote(info: PairInfo) -> list[tuple[str, str]]:
    """Rows of a pair that a server runs."""
    size = f"{_parameters(info.target.parameters)} parameters" if info.target.parameters else "not told by the server"
    return [
        ("pair", info.name),
        ("runs on", info.load.device),
        ("target", size),
        *(("note", words) for words in (info.notes.note, info.notes.warning) if words),
        ("context", f"{figures.count(info.context)} tokens" if info.context else "not told by the server"),
        ("pictures", _pictures(info)),
        ("plain speed", _plain_speed(info)),
        ("drafting", "the server drafts by itself, as it was started"),
        ("exactness", info.notes.exactness),
    ]


def _pictures(info: PairInfo) -> str:
    if not info.server.tells_sight:
        return "sent; the server does not say whether its model reads them"
    return "read, as the server says" if info.sees else "not read, as the server says"


def _read(most: ReadTexts) -> str:
    if not most.memory:
        return "read again where another text came between: keep_read is 0"
    memory = f"up to {_gib(most.memory)} of main memory, so that no chat is read again where another came between"
    if not most.folder:
        return f"{memory}; none are on disk"
    return (
        f"{memory}; long ones also on disk, up to {_gib(most.disk)} in {most.folder}, with the words of chats. "
        '"specchat engine forget" removes them, keep_read_on_disk = "0" in config.toml writes none.'
    )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _plain_speed(info: PairInfo) -> str:
    if info.plain.server:
        return f"measured by a race, without drafting at {info.plain.server}"
    return "not measured: no speed-up is shown"


def _draft(info: PairInfo) -> str:
    model = f"{_parameters(info.draft.parameters)} parameters" if info.draft.parameters else "no draft model"
    if info.draft.tokens is None:
        return model
    who = "" if info.draft.parameters else "the target's own layer "
    share = f"{figures.count(info.draft.tokens)} of {figures.count(info.target.vocabulary)} tokens"
    return f"{model}, {who}proposes {share}"


def _parameters(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
