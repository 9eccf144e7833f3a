"""All verbs in one table."""

from specchat.tui.actions.verb import Verb
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.verbs.branches import BRANCHES
from specchat.tui.verbs.chat import CHAT
from specchat.tui.verbs.chats import CHATS
from specchat.tui.verbs.composing import COMPOSING
from specchat.tui.verbs.files import FILES
from specchat.tui.verbs.reading import READING
from specchat.tui.verbs.speculation import SPECULATION

VERBS: dict[str, Verb[ChatScreen]] = {**CHAT, **READING, **SPECULATION, **BRANCHES, **CHATS, **FILES, **COMPOSING}
