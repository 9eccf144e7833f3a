"""Text and rules stand out from what is behind them, in every shipped theme."""

import re

import pytest
from conftest import LAUNCH, ROOT, THEMES, ask, loaded, make_app
from rich.segment import Segment
from textual._context import visible_screen_stack
from textual.app import App
from textual.color import Color
from textual.filter import dim_color
from textual.geometry import Region

from specchat.tui.themes import RULE, TEXT, contrast, shades, textual_theme
from tests.fake import FakeEngine
from tests.parts import changed

MIXED = [theme for theme in THEMES if not theme.ansi]
"""All but the one of the terminal's own colours, which nobody knows here."""
GROUNDS = ("background", "surface", "panel")
REPLY = """A **story**, see [here](https://x.y) and `this`:

```python
@lit
def light(lamp: int) -> str:
    return "warm" + str(3.5)  # lit
```

| a | b |
|---|---|
| 1 | 2 |

> Light.
"""
DRAWN = re.compile(r"[\u2500-\u259f\u2190-\u21ff\s]*")
"""Rules, bars and arrows."""


def colours_of(name: str) -> dict[str, str]:
    (theme,) = (theme for theme in MIXED if theme.name == name)
    made = textual_theme(theme)
    colours = {**made.to_color_system().generate(), **made.variables}
    return {**colours, **shades(colours)}


def sheets() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "specchat" / "tui").rglob("*.tcss"))


def text_colours() -> set[tuple[str, str]]:
    """The variables that the sheets colour text with, and their shares."""
    return set(re.findall(r"(?<![-\w])color: \$([\w-]+)(?: (\d+)%)?;", sheets()))


@pytest.mark.parametrize("name", [theme.name for theme in MIXED])
def test_every_colour_of_text_is_clear_on_every_ground(name: str) -> None:
    colours = colours_of(name)
    drawn = {"rule", "background"}  # `background` is the text on chips, whose colours are tried as text
    for text, share in text_colours() - {(one, "") for one in drawn}:
        for ground in GROUNDS:
            behind = Color.parse(colours[ground])
            mixed = behind.blend(Color.parse(colours[text]), int(share or 100) / 100)
            least = RULE if text == "accent" and share else TEXT  # the heat beside the text is a bar
            assert contrast(mixed, behind) >= least, (text, share, ground)


@pytest.mark.parametrize("name", [theme.name for theme in MIXED])
def test_rules_are_clear_on_every_ground(name: str) -> None:
    colours = colours_of(name)
    for ground in GROUNDS:
        assert contrast(Color.parse(colours["rule"]), Color.parse(colours[ground])) >= RULE
    assert not set(re.findall(r"border[\w-]*: \w+ (\$[^;]+);", sheets())) - {"$rule", "$accent"}


WINDOWS = (
    ("", "ctrl+t", "ctrl+t", "ctrl+b", "escape"),
    ("ctrl+f", "o", "escape", "ctrl+o", "escape"),
    ("f3", "escape", "f1", "escape", "f10", "escape", "alt+x"),
)
"""Keys that bring what there is to draw. Of colours as they are meant each theme has all, of windows a third."""


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", [theme.name for theme in MIXED])
async def test_all_that_is_drawn_is_clear(name: str) -> None:
    app = make_app(FakeEngine((REPLY,)), changed(LAUNCH, theme=name))
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "Tell me a story.")
        assert app.theme == name
        for key in WINDOWS[[theme.name for theme in MIXED].index(name) % len(WINDOWS)]:
            if key:
                await pilot.press(key)
                await pilot.pause()
            dialog = len(app.screen_stack) > 1
            assert not dialog or key != "escape"
            assert not (unclear(app, behind=dialog)), (key, unclear(app, behind=dialog))


def unclear(app: App[None], *, behind: bool) -> list[tuple[str, float]]:
    """What is too faint on the screen; with `behind` only in the dialog, as what is behind it is faint on purpose."""
    visible_screen_stack.set(app._background_screens)
    boxes = [box.region for box in app.screen.query("#dialog, #--container, #--results") if box.display]
    region = Region.from_union(boxes) if behind else app.screen.region
    found = []
    for strip in app.screen._compositor.render_strips()[region.y : region.bottom]:
        for segment in strip.crop(region.x, region.right):
            if (value := contrast_of(segment)) is not None:
                found += [(segment.text, value)] if value < (RULE if DRAWN.fullmatch(segment.text) else TEXT) else []
    return found


def contrast_of(segment: Segment) -> float | None:
    style = segment.style
    if not segment.text.strip() or style is None or style.color is None or style.bgcolor is None:
        return None
    text, ground = style.color, style.bgcolor
    if style.reverse:
        text, ground = ground, text
    if style.dim:
        text = dim_color(ground, text)
    return contrast(Color.from_rich_color(text), Color.from_rich_color(ground))
