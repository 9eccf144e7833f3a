"""Rules of widgets looked up once a process: one app after another has the same widgets in the same places.

All that rules match by is in a key: the rules themselves, the class, id and CSS classes of each node from the app on,
and the pseudo-classes that a rule asks one of these nodes for.
"""

from collections.abc import Hashable, Iterable
from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode

Path = tuple[Hashable, ...]
"""The number of a sheet, then the class, id and CSS classes of each node from the app on."""
Asked = tuple[tuple[int, str], ...]
"""Places in a path with a pseudo-class that a rule asks the node there for."""

SHEETS: dict[tuple[RuleSet, ...], int] = {}
"""A number for each sheet's rules."""
ASKED: dict[Path, Asked] = {}
PARTS_ASKED: dict[Path, Asked] = {}
"""As `ASKED`, for the component classes of a node."""
FOUND: dict[Hashable, tuple[Any, tuple[bool, ...]]] = {}
"""Rules of a node, None for none, and `FLAGS`; by path and the answers to what is asked."""
PARTS: dict[Hashable, dict[str, Any]] = {}
"""Rules of a node's component classes."""
FLAGS = ("_has_hover_style", "_has_focus_within", "_has_order_style", "_has_odd_or_even")
MATCHED: dict[int, Any] = {}
"""Rules that were looked up just now, by the address of their node."""

look_up = Stylesheet.apply
replace_rules = Stylesheet.replace_rules


def number_of(sheet: Stylesheet) -> int:
    """Return the number of the rules that `sheet` has now."""
    rules_map, known = sheet.rules_map, sheet.__dict__.get("_numbered")
    if known is None or known[0] is not rules_map:
        known = sheet.__dict__["_numbered"] = rules_map, SHEETS.setdefault(tuple(sheet.rules), len(SHEETS))
    number: int = known[1]
    return number


def asked_of(sheet: Stylesheet, node: DOMNode) -> Iterable[tuple[int, str]]:
    """Pseudo-classes that rules which `node` may have ask for."""
    rules = [rule for name in sheet.rules_map.keys() & node._selector_names for rule in sheet.rules_map[name]]
    selectors = [one for rule in rules for found in rule.selector_set for one in found.selectors if one.pseudo_classes]
    for place, one in enumerate(node.css_path_nodes):
        for selector in selectors:
            if selector._check(one):
                yield from ((place, name) for name in selector.pseudo_classes)


def virtual(node: DOMNode, component: str) -> DOMNode:
    """The node that a component class of `node` is styled as."""
    made = DOMNode(classes=component)
    made._attach(node)
    return made


def apply(sheet: Stylesheet, node: DOMNode, *, animate: bool = False, cache: Any = None) -> None:
    """`Stylesheet.apply`, from memory where it can be."""
    del cache  # which knows less
    nodes = node.css_path_nodes
    path: Path = number_of(sheet), *[(one.__class__, one._id, frozenset(one._classes)) for one in nodes]
    if path not in ASKED:
        ASKED[path] = tuple(sorted(set(asked_of(sheet, node))))
        parts = [virtual(node, component) for component in node._get_component_classes()]
        # Nothing asks the virtual node itself, which has no pseudo-classes.
        asked = {(place, name) for part in parts for place, name in asked_of(sheet, part) if place < len(nodes)}
        PARTS_ASKED[path] = tuple(sorted(asked))
    key = path, tuple([nodes[place].has_pseudo_class(name) for place, name in ASKED[path]])
    if key in FOUND:
        rules, flags = FOUND[key]
        for flag, value in zip(FLAGS, flags, strict=True):
            setattr(node, flag, value)
        if rules is not None:
            replace_rules(node, rules, animate=animate)
    else:
        look_up(sheet, node, animate=animate)
        FOUND[key] = MATCHED.pop(id(node), None), tuple([getattr(node, flag) for flag in FLAGS])
    parts_key = path, tuple([nodes[place].has_pseudo_class(name) for place, name in PARTS_ASKED[path]])
    apply_components(sheet, node, parts_key)


class Parts(dict[str, Any]):
    """Styles of a node's component classes by their `rules`, each made when it is asked for: most never are."""

    def __init__(self, node: DOMNode, rules: dict[str, Any]) -> None:
        super().__init__()
        self._node, self.rules = node, rules

    def __contains__(self, component: object) -> bool:
        return component in self.rules

    def __missing__(self, component: str) -> Any:
        part, rules = virtual(self._node, component), self.rules[component]
        if rules is not None:
            replace_rules(part, rules)
        self[component] = part.styles
        return part.styles


def apply_components(sheet: Stylesheet, node: DOMNode, key: Hashable) -> None:
    """`Stylesheet._process_component_classes`, from memory where it can be."""
    components = node._get_component_classes()
    if not components or node.__dict__.get("_components") == key:
        return
    if key not in PARTS:
        found = dict[str, Any]()
        for component in sorted(components):
            part = virtual(node, component)
            look_up(sheet, part)
            found[component] = MATCHED.pop(id(part), None)
        PARTS[key] = found
    before = node._component_styles
    node._component_styles = Parts(node, PARTS[key])
    node.__dict__["_components"] = key
    if getattr(before, "rules", None) != PARTS[key]:
        node.refresh()


def noted(node: DOMNode, rules: Any, animate: bool = False) -> None:
    """`Stylesheet.replace_rules`, which notes what was looked up."""
    MATCHED[id(node)] = rules
    replace_rules(node, rules, animate=animate)


def install() -> None:
    """Let every sheet look rules up so."""
    Stylesheet.apply = apply  # type: ignore[method-assign]
    Stylesheet._process_component_classes = lambda *_: None  # type: ignore[method-assign]
    Stylesheet.replace_rules = staticmethod(noted)  # type: ignore[method-assign, assignment]
