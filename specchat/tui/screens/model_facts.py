"""Facts about a model in their list: those of `specchat models show`, and its state in the app."""

from collections.abc import Mapping

from specchat.models import words
from specchat.models.offers import Offer
from specchat.tui.session import AppSession


def facts(offer: Offer, session: AppSession, outcomes: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and words; `outcomes` are those of writing into models.toml, by the ids of pairs."""
    rows, pair, fetching = words.about(offer), offer.pair, session.fetching
    if fetching.is_for(pair) and fetching.task is not None:
        rows.insert(0, ("download", str(fetching) or f"{fetching.task.state}; ctrl+x goes on"))
    if pair.id in outcomes:
        rows.insert(0, ("models.toml", outcomes[pair.id]))
    fallback = session.launch.service.fallback
    if fallback is not None and pair.spec == fallback.spec:
        settings = session.launch.config.settings_file or "config.toml"
        rows.insert(0, ("other folders", f"model_folders in {settings}; specchat --target FOLDER loads one at once"))
    return rows
