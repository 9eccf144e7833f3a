"""The corpus asks in many ways, and every answer follows from its request and its text."""

import re
from random import Random

import pytest

from training.corpus import copying, drills, followups, story
from training.corpus.base import assistant, user
from training.corpus.code_bank import FUNCTIONS, SAID
from training.corpus.edits_lines import LINE_EDITS
from training.corpus.edits_words import WORD_EDITS, letters, rename, replace
from training.corpus.everyday import everyday
from training.corpus.happenings import happening
from training.corpus.mixture import MAKERS
from training.corpus.parallels import parallel
from training.corpus.phrasing import order, posed, shown
from training.corpus.story_requests import LENGTHS
from training.corpus.words import any_word

pytestmark = pytest.mark.usefixtures("no_public_texts")

OPENINGS = {
    "chat": 90,
    "about": 150,
    "facts": 250,
    "beyond": 250,
    "explain": 140,
    "keys": 130,
    "story": 150,
    "code": 150,
    "qa": 280,
    "copy": 320,
    "edit": 320,
    "drill": 250,
    "sums": 200,
    "two": 250,
    "change": 200,
}


@pytest.mark.parametrize("category", MAKERS)
def test_a_topic_is_asked_for_in_many_ways(category):
    rng = Random(12)
    found = set()
    for _ in range(400):
        first = next(message for message in MAKERS[category](rng) if message["role"] == "user")
        found.add(" ".join(re.findall(r"\w+", first["content"].lower())[:3]))
    assert len(found) >= OPENINGS[category]


def test_gaps_are_filled_with_the_words_as_they_are():
    rng = Random(2)
    for _ in range(300):
        word = any_word(rng)
        said = order(rng, "replace {x} with {y}|change {x} to {y}", x=word, y="PLAIN word")
        assert word in said
        assert "PLAIN word" in said
        assert "{" not in said


def test_small_edits_change_what_they_are_asked_to():
    rng = Random(7)
    for _ in range(300):
        text, said, answer = drills.replace(rng)
        changed = [(old, new) for old, new in zip(text.split(" "), answer.split(" "), strict=True) if old != new]
        assert all(old.strip(".,!?") in said for old, _ in changed), (text, said, answer)
        text, said, answer = drills.remove(rng)
        assert set(text.split(" ")) - set(answer.split(" ")) <= set(re.sub(r"[\"'`“”]", "", said).split(" "))
        text, said, answer = drills.add(rng)
        added = [word for word in answer.split(" ") if word not in text.split(" ")]
        assert all(word in said for word in added)


def test_a_name_of_code_is_changed_everywhere():
    rng = Random(8)
    for _ in range(200):
        text, _, answer = drills.rename(rng)
        bare = [re.sub(r"```(python)?\n?", "", part).strip() for part in (text, answer)]
        pairs = {
            (old, new) for old, new in zip(*(re.findall(r"\w+", part) for part in bare), strict=True) if old != new
        }
        assert len(pairs) == 1, (text, answer)


def test_a_text_is_shown_whole_after_or_before_its_request():
    rng = Random(3)
    for source in ("One line.", "Two\nlines", 'He said "no".', "it's fine"):
        for _ in range(100):
            assert source in shown(rng, source)
            prompt = posed(rng, "Do it.", source)
            assert source in prompt
            assert "Do it" in prompt
        ends = {posed(rng, "Do it.", source, first).startswith("Do it") for first in (0.0, 1.0)}
        assert ends == {True, False}


def test_copies_are_parts_of_their_prompt():
    rng = Random(4)
    for task in (copying.repeat, copying.quoted, copying.part, copying.completion):
        for _ in range(150):
            prompt, reply = task(rng)[:2]
            assert reply["content"] in prompt["content"]


@pytest.mark.parametrize("edit", dict.fromkeys((*WORD_EDITS, *LINE_EDITS)), ids=lambda edit: edit.__name__)
def test_edits_leave_nothing_open(edit):
    rng = Random(5)
    for _ in range(100):
        source, said, answer = edit(rng)
        assert source.strip()
        assert "{x}" not in said
        assert "{y}" not in said
        old, new = (set(re.findall(r"\w+", text.lower())) for text in (source, answer))
        told = set(re.findall(r"\w+", said.lower()))
        loose = edit.__name__ in ("fix_spelling", "fix_typo", "marks")
        assert loose or new - {str(number) for number in range(1, 20)} - {"python"} <= old | told


def test_replaced_words_are_named():
    rng = Random(6)
    for edit in (replace, rename):
        for _ in range(200):
            source, said, answer = edit(rng)
            before, after = re.findall(r"\w+|\W", source), re.findall(r"\w+|\W", answer)
            for one, other in zip(before, after, strict=False):
                if one != other:
                    assert one in said
                    break


def test_letters_change_only_their_case():
    rng = Random(7)
    for _ in range(100):
        source, _, answer = letters(rng)
        assert source.lower() == answer.lower()


@pytest.mark.parametrize("maker", [everyday, happening, parallel])
def test_answers_stand_in_everyday_texts(maker):
    rng = Random(8)
    for _ in range(500):
        passage = maker(rng)
        told = set(re.findall(r"\w+", passage.text.lower()))
        for asked, answer in passage.questions:
            assert "{" not in asked + answer
            assert set(re.findall(r"\w+", answer.lower())) & told


def test_every_function_is_called_by_other_words_too():
    assert set(SAID) == {function.name for function in FUNCTIONS}
    assert all(len(orders) >= 2 for orders in SAID.values())


def test_follow_ups_repeat_or_change_what_was_said():
    rng = Random(9)
    talk = [user("Which colour has the old bridge?"), assistant("The bridge is painted blue.")]
    for _ in range(200):
        ask, reply = followups.on_chat(rng, talk)
        said = {"the bridge is painted blue.", "which colour has the old bridge?"}
        plain = reply["content"].strip('*"').lower()
        named = [word for word in ("bridge", "painted", "blue") if word in ask["content"]]
        assert plain in said or named


def test_a_story_has_the_length_that_was_asked_for():
    rng = Random(10)
    for _ in range(50):
        who = story.cast(rng)
        told = {length: story.tell(Random(1), who, length=length) for length in ("", *LENGTHS)}
        assert len(re.findall(r"[.!?](?= |$)", told["one"])) == 1
        assert len(re.findall(r"[.!?](?= |$)", told["short"])) == 3
        assert told["long"].startswith(told[""])
        assert all(who["thing"] in text and who["name"] in text for text in told.values())
