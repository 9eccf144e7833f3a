"""Code of a reply: run after a yes, apart from files and the network; its output goes along with the next prompt."""

import asyncio

from specchat.attachments.files import AttachmentError
from specchat.tui.action import Action
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.text.lines import Code


def _run(chat: ChatScreen, _: str) -> None:
    """Show the block under the cursor, or from the prompt the last one, and run it where that is wanted."""
    from specchat.sandbox.running import refusal
    from specchat.tui.screens.run import RunScreen

    code = _code(chat)
    if code is None:
        chat.say("there is no code block here", bad=True)
    elif words := refusal(code.language, code.text):
        chat.say(words, bad=True)
    else:
        language, text = code.language, code.text  # the block may still grow

        def agreed(yes: bool | None) -> None:
            if yes:
                chat.say("the code runs")
                chat.run_worker(_attach_output(chat, language, text), group="run", exit_on_error=False)

        chat.app.push_screen(RunScreen(language, text), agreed)


def _code(chat: ChatScreen) -> Code | None:
    if chat.place == "transcript":
        return chat.transcript.line.code if chat.transcript.line is not None else None
    return next((line.code for line, _ in reversed(chat.transcript.chat_rows.rows) if line.code is not None), None)


async def _attach_output(chat: ChatScreen, language: str, text: str) -> None:
    from specchat.sandbox.running import SandboxError, run
    from specchat.tui.composing.pasted import written

    folder = chat.session.launch.pasted
    if folder is None:
        return
    try:
        ran = await asyncio.to_thread(run, language, text)
        output = f"{ran.output.rstrip() or 'no output'}\n({ran.ending})\n"
        path = await asyncio.to_thread(written, folder, output.encode(), "output.txt")
    except AttachmentError as error:
        chat.say(error.message, bad=True)
    except SandboxError as error:
        chat.say(str(error), bad=True)
    else:
        chat.prompt.attach(path)
        chat.set_focus(chat.prompt)
        chat.say(f"{ran.ending} · the output goes along with the next prompt")


RUNNING: tuple[Action[ChatScreen], ...] = (
    Action("run-code", "Run code", "Run a reply's code apart from your files and the network.", _run, ("x",),
           hint="run", slash="run", where="transcript", when="on code"),
)  # fmt: skip
