"""What stands in an empty chat."""

from typing import ClassVar

from textual.content import Content

from specchat.clean import one_line
from specchat.engine.api import PairInfo
from specchat.tui import figures
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.widgets.plain import Plain


class Welcome(Plain):
    """The loaded pair in a few lines, or what loading does."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"name", "quiet", "value", "accent"}

    def show_pair(self, info: PairInfo | None, name: str, doing: str) -> None:
        rows = [styled("specchat", ".name"), EMPTY]
        if info is None:
            rows += [styled(one_line(name), ".value"), styled(doing, ".quiet")]
        else:
            rows += _loaded(info)
        self.show(Content("\n").join(rows))


def _loaded(info: PairInfo) -> list[Content]:
    sizes = _parameters(info.target_parameters)
    if info.draft_parameters:
        sizes += f" with a draft of {_parameters(info.draft_parameters)}"
    place = f"{info.device}: {info.note}" if info.note else info.device
    plain = info.plain_tokens_per_second
    usable = [status.name for status in info.strategies if status.available and status.name != "plain"]
    return [
        styled(one_line(info.name), ".value"),
        styled(f"{sizes} on {one_line(place)}, context {figures.count(info.context)}", ".quiet"),
        styled(f"plain decoding {figures.per_second(plain)} tok/s, measured here" if plain else "", ".quiet"),
        styled(f"drafting with {', '.join(usable)}" if usable else "no drafting for this pair", ".quiet"),
        styled(one_line(info.exactness), ".quiet"),
        EMPTY,
        styled("Write below and press enter.", ".accent"),
    ]


def _parameters(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
