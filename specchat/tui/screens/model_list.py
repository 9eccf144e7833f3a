"""The list of models without its looks: those of this machine, downloads, and what the hub found, filtered by words."""

from collections.abc import Sequence

from specchat.clean import one_line
from specchat.models import words
from specchat.models.offers import Offer, grouped, with_variants
from specchat.tui.screens.hub_search import HubSearch


class ModelList:
    """`rows` are those that hold the typed words; `offers` are empty until this machine's models are known."""

    def __init__(self, search: HubSearch) -> None:
        self.search = search
        self.offers: tuple[Offer, ...] = ()
        self.rows: list[Offer] = []
        self._typed = ""
        self._variants: dict[str, str] = {}
        """The id of the download chosen by the user, by that of the one in the list."""

    def take(self, found: Sequence[Offer]) -> None:
        """Take all offers there are."""
        self.offers = grouped(found)
        self.filter(self._typed)

    def filter(self, typed: str) -> None:
        """Take the rows that hold the typed words; what the hub found for just these holds them anyway."""
        self._typed, search = typed, self.search
        here = (o for o in self.offers if any(words.matches(v, typed) for v in (o, *o.variants)))
        self.rows = [self._chosen(offer) for offer in here]
        self.rows += [o for o in search.found if typed == search.words or words.matches(o, typed)]

    def _chosen(self, offer: Offer) -> Offer:
        """`offer`, or the variant that the user chose for it."""
        group = (offer, *offer.variants)
        wanted = self._variants.get(offer.pair.id)
        return next((with_variants(one, group) for one in group if one.pair.id == wanted), offer)

    def next_variant(self, shown: Offer) -> None:
        """Let the next download of the same models take the place of the one `shown`."""
        listed = next((o for o in self.offers if shown.pair.id in {v.pair.id for v in (o, *o.variants)}), None)
        if listed is not None:
            group = [v.pair.id for v in (listed, *listed.variants)]
            self._variants[listed.pair.id] = group[(group.index(shown.pair.id) + 1) % len(group)]

    @property
    def sentence(self) -> str:
        """The course of the search, or a word about a list that is empty."""
        if self.search.sentence or self.rows or not self.offers:
            return self.search.sentence
        advice = f": enter searches {self.search.host}" if self.search.possible else ""
        return f"nothing here is called “{one_line(self._typed, 60)}”{advice}"
