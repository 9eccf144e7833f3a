"""Plain decoding and a drafting strategy side by side on the same prompt and seed."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from specchat import figures
from specchat.insight.race import Lane, Race, RaceVerdict, RaceView
from specchat.tui.screens.board import GAP, Board, side_by_side
from specchat.tui.session import AppSession
from specchat.tui.text.bars import bar
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.text.tail import tail_rows


class RaceScreen(Board):
    """Shows the session's race, which has to be started; closing ends it."""

    DIALOG_TITLE = "race"
    DIALOG_HINT = "r replays · + - pace · esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "again", "Replay", show=False),
        Binding("plus,equals_sign", "faster(1)", "Faster", show=False),
        Binding("minus", "faster(-1)", "Slower", show=False),
    ]

    def __init__(self, session: AppSession) -> None:
        super().__init__()
        assert session.racing.race is not None
        self._session = session
        self.view = RaceView(session.racing.race)

    # Board

    @property
    def moving(self) -> bool:
        return self.view.moving

    def advance(self, seconds: float) -> None:
        self.view.advance(seconds)

    def rows(self, width: int, height: int) -> list[Content]:
        view = self.view
        foot = [row for words in (*_result(view.race), *_shown(view)) for row in words.wrap(width)]
        room = (width - len(GAP)) // 2
        left, right = (_lane_rows(view, lane, room, height - len(foot)) for lane in view.race.lanes)
        return [*side_by_side(left, right, room), *foot]

    # Keys

    def action_again(self) -> None:
        self.view.restart()
        self.wake()

    def action_faster(self, by: int) -> None:
        self.view.faster(by)
        self.wake()

    def on_unmount(self) -> None:
        if self._session.racing.race is self.view.race:
            self._session.racing.end()


def _lane_rows(view: RaceView, lane: Lane, width: int, height: int) -> list[Content]:
    """A lane's name, speed, way to the finish and text, `height` rows in all."""
    timeline, steps = lane.timeline, view.steps(lane)
    tokens, milliseconds = timeline.tokens_after(steps), min(view.milliseconds, lane.milliseconds)
    through = lane.reply.ended and steps == timeline.steps
    speed = figures.per_second(1000 * tokens / milliseconds) if milliseconds > 0 else "–"
    figure = styled(f"{speed} tok/s", ".value") + styled(f" · {milliseconds / 1000:.2f} s", ".label")
    title = styled(lane.label, ".title") + styled(f" · {_state(view, lane, through)}", ".label")
    head = [title, figure, _way(view.race, tokens, width, through=through)]
    offsets = lane.reply.offsets
    shown = lane.reply.text[: offsets[steps]] if steps < len(offsets) else lane.reply.text
    rows = [row.truncate(width, ellipsis=True) for row in [*head, *tail_rows(shown, width, max(height - len(head), 1))]]
    return [*rows, *[EMPTY] * (height - len(rows))][: max(height, 0)]


def _way(race: Race, tokens: int, width: int, *, through: bool) -> Content:
    """Tokens to the end, known once a lane has reached it. One that is through may have fewer than the other."""
    ends = (one.timeline.tokens_after(one.timeline.steps) for one in race.lanes if one.reply.ended)
    goal = tokens if through else max(ends, default=0)
    words = f" {tokens}/{goal}" if goal else f" {tokens}"
    done, rest = bar(tokens / goal if goal else 0.0, max(width - len(words), 1))
    return styled(done, ".spark") + styled(rest, ".track") + styled(words, ".label")


def _state(view: RaceView, lane: Lane, through: bool) -> str:
    race = view.race
    if through:
        return "finished" if lane.reply.state == "finished" else lane.reply.outcome
    if race.running and lane is race.lanes[race.at]:
        return "running" if lane.reply.steps else "reading the prompt"
    if lane.reply.ended:
        return "replayed"
    return "waits" if race.running else "not run"


def _shown(view: RaceView) -> list[Content]:
    """Pace of the lanes, once there is a result."""
    if view.race.verdict is None:
        return []
    return [styled(f"shown {view.pace}{' than it was' * (view.speed != 1)}; the figures are the real ones", ".label")]


def _result(race: Race) -> list[Content]:
    """The result, in a few sentences."""
    verdict = race.verdict
    if verdict is not None:
        return [_speeds(race, verdict), _sameness(race, verdict)]
    if race.state == "failed":
        return [styled(f"no result: {race.error}", ".bad")]
    if race.state == "stopped":
        return [styled("stopped: no result", ".bad")]
    words = "one lane after the other, because two at once would halve both; reading the prompt is not counted"
    return [styled(words, ".label")]


def _speeds(race: Race, verdict: RaceVerdict) -> Content:
    plain, other = race.lanes
    if verdict.times is None:
        return styled("no result: nothing was written", ".label")
    times = f"{other.label}: {verdict.times:.2f}x plain"
    seconds = f", {other.milliseconds / 1000:.2f} s against {plain.milliseconds / 1000:.2f} s, measured"
    style = ".good" if verdict.times >= 1.02 else ".bad" if verdict.times < 0.98 else ".value"
    return styled(times, style) + styled(seconds, ".label")


def _sameness(race: Race, verdict: RaceVerdict) -> Content:
    label = styled("outputs identical: ", ".label")
    if verdict.identical:
        plain = race.lanes[0].reply
        all_of = (len(plain.text), "character") if verdict.by_text else (plain.tally.tokens, "token")
        return label + styled("yes", ".good") + styled(f", all {figures.of(*all_of)}", ".label")
    acceptance = race.lanes[1].speculation.acceptance
    where = f", first difference at {'character' if verdict.by_text else 'token'} {(verdict.difference or 0) + 1:,}"
    if verdict.expected:
        return label + styled("no", ".bad") + styled(where, ".label")
    how = f"with {acceptance} acceptance it is the same distribution"
    if race.elsewhere:
        how = "a server that drafts keeps the distribution"
    reason = f"; {how}, not the same text"
    return label + styled("no", ".value") + styled(where + reason, ".label")
