"""The frontend on a full screen: the story of the session above, the person's line below.

::

    ┌ story: messages, calls and their output, diffs ──────┐
    │                                                      │
    ├ plan ────────────────────────────────────────────────┤
    │ question, and exactly the rules of "always"          │
    │ what completes the word, or what waits in the queue  │
    ├ > the person's line ─────────────────────────────────┤
    └ session · context · activity ────────────────────────┘
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from ostinato.harness.client import GatewayRefused, Reply
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.errors import UserAborted
from ostinato.harness.execute import ToolResult
from ostinato.harness.frontends.plain import verdict
from ostinato.harness.frontends.replay import show_again
from ostinato.harness.frontends.screen import at_home, headline, plan
from ostinato.harness.frontends.slash_commands import (
    COMMANDS,
    QuitRequested,
    command,
    is_command,
    resumed,
)
from ostinato.harness.frontends.terminal.asking import KEYS, PERMISSION, Asking
from ostinato.harness.frontends.terminal.background import is_dark
from ostinato.harness.frontends.terminal.completion import Candidates, complete
from ostinato.harness.frontends.terminal.earlier import EarlierSessions
from ostinato.harness.frontends.terminal.hang_up import hung_up
from ostinato.harness.frontends.terminal.history import LineHistory
from ostinato.harness.frontends.terminal.line import Choices, PromptLine
from ostinato.harness.frontends.terminal.look import CSS, GREETING
from ostinato.harness.frontends.terminal.memory import settle
from ostinato.harness.frontends.terminal.status import FRAME_S, Activity, status
from ostinato.harness.frontends.terminal.story import Story
from ostinato.harness.frontends.terminal.story_writer import StoryWriter
from ostinato.harness.git import GitError, git
from ostinato.harness.session_log import LogError
from ostinato.harness.tools.names import shown
from ostinato.harness.users import (
    UNCLEAR,
    PermissionAnswer,
    PermissionRequest,
    choice_of,
    permission_of,
    question_of,
    visible,
)
from ostinato.harness.workspace.workbench import Options, Workbench

DONE = 0
MOST_FILES = 50_000
"""The files that are completed."""


class CodeApp(App[int]):
    """An app with one workbench, of which it is both the User and the Observer."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", "stop", priority=True),
        Binding("escape", "stop", "stop"),
        Binding("ctrl+o", "fold", "open", priority=True),
        Binding("pageup", "page(-1)", "back", priority=True),
        Binding("pagedown", "page(1)", "on", priority=True),
    ]

    def __init__(
        self, options: Options, prompt: str | None = None, resume: str | None = None, *, dark: bool = True
    ) -> None:
        super().__init__()
        self.theme = "textual-dark" if dark else "textual-light"
        self._options = options
        self._first = prompt
        self._resume = resume
        self._bench: Workbench | None = None
        self._work: asyncio.Task[None] | None = None
        self._asking = Asking(id="asking")
        self._queue: list[str] = []
        self._files: list[str] = []
        self._history = LineHistory(options.sessions.directory.parent / "history.jsonl")
        self.activity = Activity()
        self._took = 0.0
        self._writer = StoryWriter(dark=dark)

    @property
    def transcript(self) -> list[str]:
        """Every entry of the story, as text."""
        return self._writer.transcript

    @property
    def farewell(self) -> str:
        """Return how to go on with the session."""
        return "" if self._bench is None else self._bench.farewell

    def compose(self) -> ComposeResult:
        yield Story(id="story")
        yield Static(id="plan", markup=False)
        yield self._asking
        yield EarlierSessions(id="sessions")
        yield Static(id="queue", markup=False)
        choices = Choices(id="found")
        yield choices
        yield PromptLine(choices, self._history, self._completed, self._asking.pressed, id="line")
        yield Static("", id="status", markup=False)

    async def on_mount(self) -> None:
        self._writer.story = self.query_one("#story", Story)
        self._line.focus()
        self.set_interval(FRAME_S, self._tick)
        self._work = asyncio.ensure_future(self._guarded(self._begin))

    async def _begin(self) -> None:
        try:
            self._bench = await Workbench.open(self._options, self, self)
            self.say(f"{at_home(self._bench.root)}: {GREETING}", "dim")
            for notice in self._bench.notices:
                self.say(notice, "yellow")
            await self._list_files()
            if self._resume is not None:
                await self._go_on(self._resume)
        except Exception as error:
            self.exit(message=f"ostinato: {error}", return_code=2, result=2)
            return
        self._rest()
        if self._first is not None:
            await self._take(self._first)

    async def on_prompt_line_submitted(self, event: PromptLine.Submitted) -> None:
        if self._asking.waits:
            # After the next refresh the question has its size: what is typed ahead permits nothing unseen.
            self.call_after_refresh(self._asking.take, event.text)
        elif event.text.strip() and (self._work is None or self._work.done()):
            self._start(event.text)
        elif event.text.strip():
            self._queue.append(event.text)
            self._show_queue()

    def _start(self, text: str) -> None:
        self._work = asyncio.ensure_future(self._guarded(lambda: self._take(text)))

    def action_interrupt(self) -> None:
        """Stop the running work; leave the app when nothing runs."""
        if not self.action_stop():
            self.exit(DONE)

    def action_stop(self) -> bool:
        """Stop the running work; return False when nothing runs.

        What waited comes back into the line, so that nothing runs by itself.
        """
        if self.query_one(EarlierSessions).display:
            self._leave_sessions()
            return True
        if self._work is None or self._work.done():
            return False
        if self._queue:
            self._line.put("\n".join([*self._queue, self._line.text]).strip("\n"))
            self._queue.clear()
            self._show_queue()
        self._work.cancel()
        return True

    def action_fold(self) -> None:
        self.query_one("#story", Story).toggle_newest()

    def action_page(self, by: int) -> None:
        place = self._asking if self._asking.waits else self.query_one("#story", Widget)
        place.scroll_relative(y=by * max(1, place.size.height - 2), animate=False)

    async def close(self) -> None:
        """Close the session. Call it after the app has left the screen."""
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait((self._work,))
        if self._bench is not None:
            await self._bench.close()

    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            self.say("interrupted; the session goes on", "yellow")
        except QuitRequested:
            self.exit(DONE)
            return
        except GatewayRefused as error:
            self.say(f"ostinato: {error}", "red")
        if self.is_running and self._bench is not None:
            self._rest()
            self.call_later(self._next_queued)

    def _next_queued(self) -> None:
        if self._queue and (self._work is None or self._work.done()):
            text = self._queue.pop(0)
            self._show_queue()
            self._start(text)

    async def _take(self, line: str) -> None:
        bench = self._opened_bench()
        self._writer.asked(line)
        self._took, began = 0.0, time.monotonic()
        if is_command(line):
            await self._obey(bench, line)
            return
        before = await bench.checkpoints.take()
        self._do("thinking")
        try:
            outcome = await bench.prompt(line.removeprefix("/") if line.startswith("//") else line)
        finally:
            self._took = time.monotonic() - began
            self._writer.changed(await bench.checkpoints.diff(before, await bench.checkpoints.take()))
        if verdict(outcome):
            self.say(f"ostinato: {verdict(outcome)}", "red")
        await self._list_files()

    async def _obey(self, bench: Workbench, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        if name == "/resume" and not rest.strip():
            if not self.query_one(EarlierSessions).offer(bench.earlier()):
                self.say("no earlier session of this repository")
        elif name == "/resume":
            await self._go_on_or_say(rest.strip())
        else:
            self._writer.answered(await command(bench, line))

    # Earlier sessions.

    def on_earlier_sessions_chosen(self, event: EarlierSessions.Chosen) -> None:
        self._leave_sessions()
        self._work = asyncio.ensure_future(self._guarded(lambda: self._go_on_or_say(event.session_id)))

    def _leave_sessions(self) -> None:
        self.query_one(EarlierSessions).display = False
        self._line.focus()

    async def _go_on_or_say(self, session_id: str) -> None:
        try:
            await self._go_on(session_id)
        except (LogError, GitError, OSError) as error:
            self.say(f"ostinato: {error}", "red")

    async def _go_on(self, session_id: str) -> None:
        """Go on with an earlier session, and show it again."""
        bench = self._opened_bench()
        await bench.resume(session_id)
        log = bench.conversation.log
        self._writer.later = True
        show_again(log.events if log is not None else (), self)
        self._writer.ended()
        self._writer.later = False
        self.say(resumed(bench), "dim")

    # The Observer: what the agent does, as it happens.

    def text(self, piece: str) -> None:
        self.activity.pieces += 1
        self._writer.text(piece)

    def reply(self, reply: Reply) -> None:
        self._writer.ended()
        self._line.border_title = Text(visible(self._opened_bench().place))
        self._do("working")

    def call(self, call: Call) -> None:
        self._writer.call(headline(call))
        self._do(f"runs {visible(call.tool)}")
        if plan(call):
            steps = self.query_one("#plan", Static)
            steps.update(Text("\n".join(plan(call))))
            steps.display = True

    def output(self, call: Call, piece: str) -> None:
        self._writer.output(piece)

    def edited(self, call: Call, edit: Edit) -> None:
        self._writer.edited(edit)

    def result(self, call: Call, observation: ToolResult) -> None:
        self._writer.result(observation)
        self._do("thinking")

    def say(self, text: str, style: str = "") -> None:
        """Show a line of the program itself."""
        self._writer.say(text, style)

    # The User: questions of the agent.

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        text = choice_of(await self._ask(question, "a question", options), options)
        if not text:
            raise UserAborted("the user did not answer")
        return text

    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        lines = [*question_of(request), KEYS]
        while (decision := permission_of(await self._ask("\n".join(lines), PERMISSION))) is None:
            lines = [UNCLEAR, *question_of(request), KEYS]
        return decision

    async def _ask(self, question: str, title: str, options: Sequence[str] = ()) -> str:
        """Ask, with an empty line: what was half typed before is set aside, so that it answers nothing."""
        draft, doing = self._line.text, self.activity.doing
        self._line.put("")
        self._do("waits for your answer", moves=False)
        try:
            answer = await self._asking.ask(question, title, options)
        finally:
            self._line.put("\n".join(part for part in (self._line.text, draft) if part))
            self._do(doing)
        self.say(f"? {question}\n> {answer}", "yellow")
        return answer

    # The line and what is around it.

    @property
    def _line(self) -> PromptLine:
        return self.query_one("#line", PromptLine)

    def _completed(self, before: str) -> Candidates | None:
        return None if self._asking.waits else complete(before, COMMANDS, self._files)

    async def _list_files(self) -> None:
        try:
            listed = await git(
                self._opened_bench().root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"
            )
        except GitError as error:
            self.say(f"ostinato: no files are completed: {error}", "yellow")
            return
        self._files = [shown(os.fsdecode(name)) for name in listed.split(b"\0")[:MOST_FILES] if name]

    def _show_queue(self) -> None:
        queue = self.query_one("#queue", Static)
        queue.display = bool(self._queue)
        waiting = [f"waits: {visible(text).partition(chr(10))[0]}" for text in self._queue]
        queue.update(Text("\n".join(waiting), no_wrap=True, overflow="ellipsis"))

    def _do(self, doing: str, *, moves: bool = True) -> None:
        self.activity = Activity(doing=doing, since=time.monotonic(), moves=moves)
        self._show_status()

    def _rest(self) -> None:
        self._writer.ended()
        settle()
        self._do(f"took {self._took:.0f} s" if self._took else "", moves=False)
        if self._bench is not None:
            self._line.border_title = Text(visible(self._bench.place))

    def _tick(self) -> None:
        self._writer.flush()
        if self.activity.doing and self.activity.moves:
            self._show_status()

    def _show_status(self) -> None:
        if self._bench is None:
            return
        session = self._bench.conversation.session_id[:8]
        doing = self.activity.words(time.monotonic())
        told = status(session, self._bench.fullness, self._bench.filled, doing, self.size.width)
        for line in self.query("#status").results(Static):  # there is none while the app leaves
            line.update(told)

    def _opened_bench(self) -> Workbench:
        if self._bench is None:
            raise QuitRequested  # no repository was opened, so there is nothing to show
        return self._bench


async def full_screen(prompt: str | None, resume: str | None, options: Options) -> tuple[int, str]:
    """Run a conversation on the full screen. Return the exit status (0 done, 2 wrong request) and how to go
    on with the session; a terminal that is gone is told nothing.
    """
    app = CodeApp(options, prompt, resume, dark=is_dark(sys.stdin.fileno(), os.environ))
    gone = asyncio.ensure_future(hung_up(sys.stdin.fileno()))
    gone.add_done_callback(lambda done: None if done.cancelled() else app.exit(DONE))
    try:
        status_code = await app.run_async()
    finally:
        told = "" if gone.done() else app.farewell
        gone.cancel()
        await asyncio.shield(app.close())
    return DONE if status_code is None else status_code, told
