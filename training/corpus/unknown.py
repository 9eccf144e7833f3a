"""Questions of the forms that the model answers, about what it does not know; they are declined."""

from __future__ import annotations

from random import Random

from training.corpus.base import capital, pick
from training.corpus.beyond import UNKNOWN
from training.corpus.words import ANIMALS, CITIES, FOODS, NAMES, NOUNS, OBJECTS, any_word, invented

_COUNTRIES = (
    "Argentina|Chile|Bolivia|Ecuador|Colombia|Venezuela|Uruguay|Paraguay|Mexico|Cuba|Jamaica|Haiti|Panama|Guatemala"
    "|Honduras|Iceland|Hungary|Romania|Bulgaria|Serbia|Croatia|Slovenia|Slovakia|the Czech Republic|Ukraine|Belarus"
    "|Latvia|Estonia|Lithuania|Malta|Cyprus|Albania|Luxembourg|Monaco|Georgia|Armenia|Kazakhstan|Iran|Iraq|Syria"
    "|Jordan|Israel|Lebanon|Saudi Arabia|Yemen|Oman|Qatar|Pakistan|Nepal|Bhutan|Bangladesh|Sri Lanka|Burma|Thailand"
    "|Vietnam|Laos|Cambodia|Malaysia|Indonesia|Singapore|the Philippines|South Korea|North Korea|New Zealand|Fiji"
    "|Samoa|Morocco|Algeria|Tunisia|Libya|Sudan|Ethiopia|Somalia|Uganda|Rwanda|Tanzania|Zambia|Zimbabwe|Botswana"
    "|Namibia|South Africa|Angola|Congo|Gabon|Cameroon|Nigeria|Ghana|Togo|Benin|Senegal|Mali|Niger|Chad|Texas"
    "|California|Scotland|Wales|Bavaria|Greenland|Africa|Europe"
)


def unknown_of(rng: Random, capital_forms: str) -> tuple[str, str]:
    """A question about a place, a row, a word or an animal that no lesson has; declined."""
    chance = rng.random()
    if chance < 0.6:
        country = pick(rng, _COUNTRIES) if rng.random() < 0.75 else capital(invented(rng))
        return pick(rng, capital_forms).format(x=country), UNKNOWN
    if chance < 0.75:
        word = rng.choice((rng.choice(NAMES), rng.choice(NOUNS), any_word(rng), rng.choice(CITIES)))
        forms = "What comes {w} {x}?|Which one comes {w} {x}?|what is {w} {x}|{x} comes {w} what?|Who comes {w} {x}?"
        return pick(rng, forms).format(w=pick(rng, "after|before"), x=word), UNKNOWN
    if chance < 0.87:
        word = rng.choice(NOUNS + OBJECTS + FOODS)
        return pick(rng, "What is the opposite of {x}?|opposite of {x}|antonym of {x}").format(x=word), UNKNOWN
    animal = rng.choice([one for one in ANIMALS if one not in ("dog", "cat", "horse", "spider", "cow", "bee")])
    forms = "How many legs does a {x} have?|What sound does a {x} make?|What does a {x} say?|What colour is a {x}?"
    return pick(rng, forms).format(x=animal), UNKNOWN
