"""Formulas of LaTeX: found in a text, and shown as characters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib._mathtext_data import tex2uni
from test_text import a_reply, answered, shown, step, styles_at

from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.stats import Stats
from specchat.formulas.latex import in_rows, on_a_line
from specchat.formulas.symbols import symbol
from specchat.tui.text.blocks import BlockSplitter, split
from specchat.tui.text.markdown import block_lines, parse
from specchat.tui.text.turn import TurnView

OTHER_FORMS = {
    "acute", "barwedge", "bigcirc", "blacktriangleleft", "blacktriangleright", "breve", "bullet", "cdot", "check",
    "diamondsuit", "dot", "epsilon", "grave", "hbar", "heartsuit", "not", "nsubset", "nsupset", "ocirc", "perp",
    "preceq", "quad", "succeq", "tilde", "triangle", "triangleleft", "triangleright",
}  # fmt: skip
"""Commands for which matplotlib has another form of the same sign, such as a bullet of another size."""


def reply_rows(text: str) -> list[str]:
    """The rows of a reply, without the prompt, the names and what it cost."""
    reply = a_reply(step((text, "draft")))
    reply.finished(Finished(1, "stop", text, (), Stats()))
    return shown(TurnView(answered("p", reply), first=True, token_view=False), 200)[2:-2]


def test_commands_are_the_characters_that_matplotlib_has() -> None:
    ours = {name: symbol(name) for name in tex2uni}
    assert {name for name, character in ours.items() if character not in (None, chr(tex2uni[name]))} == OTHER_FORMS
    assert sum(character is not None for character in ours.values()) > 400


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        (r"E=mc^2", "E = mc²"),
        (r"\alpha + \beta \leq \gamma_{ij}^{2n}", "α + β ≤ γᵢⱼ²ⁿ"),
        (r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}", "x = (−b ± √(b² − 4ac))/2a"),
        (r"\frac{n!}{k!(n-k)!}", "n!/(k!(n − k)!)"),
        (r"\sum_{i=1}^{n} i = \frac{n(n+1)}{2}", "∑ᵢ₌₁ⁿ i = n(n + 1)/2"),
        (r"f: \mathbb{R} \to \mathbb{R}", "f: ℝ → ℝ"),
        (r"\lim_{x \to 0} \frac{\sin x}{x} = 1", "lim_(x→0) (sin x)/x = 1"),
        (r"e^{-x^2}", "e^(−x²)"),
        (r"\hat{y} = -\log p_\theta(x)", "y\u0302 = −log p_θ(x)"),
        (r"\text{if } x \notin A", "if x ∉ A"),
        (r"90^\circ, f'(x), \{1, 2\}", "90°, f′(x), {1, 2}"),
        (r"a \equiv b \pmod{n}", "a ≡ b (mod n)"),
        (r"\frac{\partial f}{\partial x}", "∂f/∂x"),
        (r"\sqrt[3]{x} \cdot \boxed{42}", "∛x · [42]"),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", "(a  b; c  d)"),
    ],
)
def test_a_formula_on_a_line(formula: str, line: str) -> None:
    assert on_a_line(formula) == line


ROWS = {
    r"x = \frac{a+b}{2}": ["     a + b", "x = ───────", "       2"],
    r"\begin{bmatrix} 1 & 10 \\ 200 & 3 \end{bmatrix}^T": ["⎡  1   10 ⎤ᵀ", "⎣ 200  3  ⎦"],
    r"f = \begin{cases} x & x > 0 \\ 0 & \text{else} \end{cases}": ["f = ⎧ x  x > 0", "    ⎩ 0  else"],
    r"\begin{aligned} ab &= c \\ d &= ef \end{aligned}": ["ab = c", " d = ef"],
    r"a \\ b": ["a", "b"],
}


@pytest.mark.parametrize("formula", ROWS)
def test_a_formula_in_rows_where_there_is_room(formula: str) -> None:
    assert in_rows(formula, 40) == ROWS[formula]
    assert in_rows(formula, 4) == [on_a_line(formula)] or formula == r"a \\ b"


@pytest.mark.parametrize(
    "formula",
    [r"\unknown{x}", "{", "}", r"\frac{1}", r"\begin{pmatrix} a", r"\left( x", "x" * 4000, "{" * 99 + "}" * 99],
)
def test_a_formula_that_is_not_understood_has_no_other_form(formula: str) -> None:
    assert on_a_line(formula) is None
    assert in_rows(formula, 40) is None


PIECES = [
    *r"{}^_&$ a1+-([]", r"\\", r"\frac", r"\left(", r"\right)", r"\sqrt", r"\alpha", r"\text", r"\begin{matrix}",
    r"\end{matrix}", r"\hat",
]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_any_formula_can_be_read(pieces: list[str]) -> None:
    formula = "".join(pieces)
    rows = in_rows(formula, 60)
    assert (rows is None) == (on_a_line(formula) is None)
    assert "\n" not in "".join(rows or [])


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("so $a_i * b_i * c$ holds", ["so aᵢ * bᵢ * c holds"]),
        (r"so \(a_1 + \alpha_2\) and \[x_1 \\ y_2\] hold", ["so a₁ + α₂ and x₁; y₂ hold"]),
        ("so $$\\sum_{i} *x* _y_$$ holds", ["so $$\\sum_{i} *x* _y_$$ holds"]),  # a script without a base is none
        ("$$\na_1\n+ b_2\n= c_3\n$$", ["  a₁ + b₂ = c₃"]),
        ("\\[\nx_1 * y\n- z * w\n\\]", ["  x₁ * y − z * w"]),
        ("$$\\frac{1}{2}$$", ["   1", "  ───", "   2"]),
        ("- so\n\n  $$\\frac{1}{2}$$", ["• so", "", "     1", "    ───", "     2"]),
        ("$$\n\\unknown\n$$", ["$$", "\\unknown", "$$"]),
        ("`$x^2$` and\n\n    $y^2$", ["`$x^2$` and".replace("`", ""), ""]),
    ],
)
def test_formulas_in_replies(source: str, rows: list[str]) -> None:
    assert reply_rows(source)[: len(rows)] == rows


def test_formulas_have_a_style_of_their_own() -> None:
    (line,) = block_lines(parse("*so* $x_1$ ok"), 40)
    assert styles_at(line, "x₁") == {".md-math"}
    assert styles_at(line, "so") == {".md-em"}


def test_no_formula_is_looked_for_in_code() -> None:
    assert any("$x^2$" in row for row in reply_rows("```\n$x^2$\n```"))


@pytest.mark.parametrize(
    ("source", "shown_as"),
    [
        ("from $5 to $10 and *more*", "from $5 to $10 and more"),
        ("a $ b $ *c*", "a $ b $ c"),
        ("`$x` and $ *y*", "$x and $ y"),
        ("\\$5 *and* $6", "$5 and $6"),
        ("$$ *open*\n\nmore", "$$ open\n\nmore"),
        ("$$\n*open*\n\nmore", "$$\nopen\n\nmore"),
    ],
)
def test_dollars_are_not_always_formulas(source: str, shown_as: str) -> None:
    assert [row for row in reply_rows(source) if row] == [row for row in shown_as.split("\n") if row]


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["$$\n", "x_1\n", "\\[\n", "\\]\n", "\n", "- a\n", "```\n", "# h\n", "$$", "y "])),
    st.data(),
)
def test_any_split_of_formulas_gives_the_same_blocks(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    cut = data.draw(st.integers(0, len(text)))
    splitter = BlockSplitter()
    blocks = splitter.feed(text[:cut]) + splitter.feed(text[cut:]) + splitter.close()
    assert blocks == split(text)
    assert "".join(block.source for block in blocks).split() == text.split()
