"""Rules from the memory that tests of the app share are those that Textual finds anew."""

from typing import Any

import pytest
import styling
from conftest import THEMES, ask, loaded, make_app
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode

from tests.fake import FakeEngine


def found_anew(sheet: Stylesheet, node: DOMNode, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found = dict[str, Any]()
    with monkeypatch.context() as patch:
        patch.setattr(Stylesheet, "replace_rules", staticmethod(lambda _, rules, **__: found.update(rules)))
        styling.look_up(sheet, node)
    return found


async def test_every_state_has_the_rules_that_are_looked_up_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the focus, a dialog, another theme: of widgets, and of their parts."""
    app = make_app(FakeEngine())
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        (other,) = (theme.name for theme in THEMES if theme.name == "dusk" != app.theme)
        for change in ("", "ctrl+b", "tab", "f3", "escape", "theme", "size", "ctrl+o"):
            if change == "theme":
                app.theme = other
            elif change == "size":
                await pilot.resize_terminal(60, 13)
            elif change:
                await pilot.press(change)
            await pilot.pause()
            for node in app.screen.walk_children(with_self=True):
                app.stylesheet.apply(node)
                parts = [(component, styling.virtual(node, component)) for component in node._get_component_classes()]
                for one, styles in (
                    (node, node.styles),
                    *((part, node._component_styles[name]) for name, part in parts),
                ):
                    remembered = dict(styles.base._rules)
                    styling.replace_rules(one, found_anew(app.stylesheet, one, monkeypatch))
                    assert one.styles.base._rules == remembered, (node, one)
