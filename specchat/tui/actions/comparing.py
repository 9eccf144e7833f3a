"""Answering a prompt by another pair: in the place of the chat's, or beside it."""

from specchat.clean import one_line
from specchat.service.two_replies import TwoReplies
from specchat.tui.action import Action
from specchat.tui.actions.models import model_values
from specchat.tui.screens.chat import ChatScreen


async def again(chat: ChatScreen, name: str) -> None:
    """Answer again, by the pair of that name if there is one."""
    if not await chat.chats.regenerate(chat.chats.turn, name):
        chat.prompt.restore(f"/again {name}")


async def _again(chat: ChatScreen, name: str) -> None:
    """Answer again, by the pair of that name, or by one that is chosen."""
    from specchat.tui.screens.again import AgainScreen

    session, turn = chat.session, chat.chats.turn
    if name or turn is None or session.replies or session.calling:
        await again(chat, name)
        return

    async def chosen(pair: str | None) -> None:
        if pair is not None:
            await chat.chats.regenerate(turn, pair)

    def here() -> list[str]:
        catalog = [pair.id for pair in chat.catalog.pairs if not pair.unsupported and not session.fetching.lacks(pair)]
        return [*catalog, *(offer.pair.id for offer in session.fetching.listed if not offer.missing)]

    own, known = session.wanted or session.loaded.id, dict(model_values(chat))
    others = [one for one in known.items() if one[0] != own]
    chat.app.push_screen(AgainScreen(known.get(own, own), others, here), chosen)


async def _compare(chat: ChatScreen, argument: str) -> None:
    """Answer the last prompt, or the one after the name of the pair, by that pair too."""
    name, _, prompt = argument.partition(" ")
    if not name:
        chat.prompt.restore("/compare ")
        chat.say("name the model that answers too, and a prompt if it is not the last one")
    elif not await _begun(chat, name, prompt.strip()):
        chat.prompt.restore(f"/compare {argument}")


async def _begun(chat: ChatScreen, name: str, prompt: str) -> bool:
    from specchat.tui.screens.compare import CompareScreen

    session, last = chat.session, chat.session.conversation.last
    other = await chat.chats.usable(name)
    if other is None:
        return False
    if session.waiting:
        chat.say("prompts wait for a reply: compare once they are answered", bad=True)
        return False
    if other.id == (session.wanted or session.loaded.id):
        chat.say(f"{one_line(other.name, 40)} answers in this chat already: name another, or use /again", bad=True)
        return False
    if prompt:
        if not await chat.chats.own_pair():
            return False
        if refusal := session.send(prompt):
            chat.refuse(refusal)
            return False
        chat.feed.asked()
    elif last is None or last.reply is None:
        chat.say("there is no reply to compare with yet: /compare MODEL PROMPT asks both", bad=True)
        return False
    comparison = TwoReplies(session, other)

    def closed(_: object) -> None:
        chat.chats.show_conversation()
        chat.draw_chats()
        chat.transcript.follow()

    chat.app.push_screen(CompareScreen(session, comparison), closed)
    return True


COMPARING: tuple[Action[ChatScreen], ...] = (
    Action("regenerate", "Regenerate", "Answer again, by the same model or another one, as a branch.",
           _again, ("alt+r",), hint="again", slash="again", argument="pair", values=model_values, when="answered"),
    Action("compare", "Compare", "Have another model answer too, and keep one reply.",
           _compare, slash="compare", argument="pair", values=model_values),
)  # fmt: skip
