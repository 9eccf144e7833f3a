"""The calls of the open chat that wait for the user's answer."""

from specchat.service.calls import CallRound, Decision, PendingCall
from specchat.tui.screens.window import ChatWindow


class Permissions:
    """Shows the dialog for each, where nothing else is shown."""

    def __init__(self, window: ChatWindow) -> None:
        self._window = window

    def look(self) -> None:
        """Ask for the next call, if there is one and the window is free."""
        window = self._window
        calling = window.session.calling
        asked = calling.asked if calling is not None else None
        if calling is None or asked is None or not window.is_active:
            return
        from specchat.tui.screens.permission import PermissionScreen

        others = sum(1 for pending in calling.pending if pending.future is None) - 1
        window.app.push_screen(
            PermissionScreen(asked, window.keys, others), lambda decision: self._decided(calling, asked, decision)
        )

    def answer(self, decision: Decision) -> None:
        """Answer the call that is asked for, without its dialog."""
        calling = self._window.session.calling
        if calling is None or (asked := calling.asked) is None:
            self._window.say("no call of a tool is asked for", bad=True)
        else:
            self._decided(calling, asked, decision)

    def _decided(self, calling: CallRound, call: PendingCall, decision: Decision | None) -> None:
        session = self._window.session
        if session.calling is calling:
            session.decide(call, decision or "no")
        self._window.redraw()
