from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.tui.text.blocks import BlockSplitter, split

SAMPLE = """# Title
Para one
still

- a
- b
  more

- c
  ```py
  x

  y
  ```
1. one
2. two
   - sub

text
```python
def f():

    pass
```
~~~
```
~~~
| a | b |
|---|---|
| 1 | 2 |

> q

***
end"""

lines = st.sampled_from(
    ["", "text", "- a", "  - b", "  more", "1. one", "2) two", "```", "```py", "~~~~", "# head", "> q", "| a | b |",
     "---", "    four", "* * *", "  ```", "   ", "`` ` ``", "\ttab", "````", "12. x", "-"]
)  # fmt: skip
documents = st.one_of(
    st.just(SAMPLE), st.lists(lines, max_size=30).map("\n".join), st.text("-*`#>| \n1.ax", max_size=80)
)


@settings(max_examples=400)
@given(documents, st.data())
def test_any_split_of_the_stream_gives_the_same_blocks(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    splitter = BlockSplitter()
    blocks = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        blocks += splitter.feed(text[start:end])
        tail = splitter.tail
        assert tail is None or text[tail.start :].startswith(tail.source)
    blocks += splitter.close()
    assert blocks == split(text)


@given(documents)
def test_blocks_are_the_text_in_order(text: str) -> None:
    position = 0
    for block in split(text):
        assert not text[position : block.start].strip()
        assert text[block.start : block.end] == block.source
        position = block.end
    assert not text[position:].strip()


def test_each_construct_is_one_block() -> None:
    kinds = [block.source.split("\n")[0] for block in split(SAMPLE)]
    assert kinds == ["# Title", "Para one", "- a", "- b", "- c", "1. one", "2. two", "text", "```python", "~~~",
                     "| a | b |", "> q", "***"]  # fmt: skip
    code = [block for block in split(SAMPLE) if block.code]
    assert [(block.info, block.body) for block in code] == [("python", "def f():\n\n    pass"), ("", "```")]


def test_list_items_stand_together_unless_spaced() -> None:
    assert [block.spaced for block in split("- a\n- b\n\n- c\ntext\n\nmore")] == [False, False, True, True]


def test_an_unclosed_fence_keeps_its_last_line() -> None:
    (block,) = split("```py\na = 1\n``\nb")
    assert block.body == "a = 1\n``\nb"


def test_closed_blocks_come_before_the_end() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("one\n\ntwo\n- not yet") != []
    assert splitter.tail is not None
    assert splitter.tail.source == "two\n- not yet"
