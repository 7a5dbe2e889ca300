"""The frontend on a full screen: the story of the session above, the person's line below.

::

    ┌ story: messages, calls and their output, diffs ──────┐
    │                                                      │
    ├ plan ────────────────────────────────────────────────┤
    │ question, and exactly the rules of "always"          │
    ├ > the person's line ─────────────────────────────────┤
    └ session · tokens · activity ─────────────────────────┘
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from rich.syntax import Syntax
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from ostinato.harness.client import GatewayRefused, Reply
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.errors import UserAborted
from ostinato.harness.execute import ToolResult
from ostinato.harness.frontends.plain import verdict
from ostinato.harness.frontends.screen import headline, plan, shortened
from ostinato.harness.frontends.slash_commands import QuitRequested, command, is_command
from ostinato.harness.users import CHOICES, UNCLEAR, Grant, PermissionRequest, grant_of, question_of, visible
from ostinato.harness.workspace.workbench import Options, Workbench

DONE = 0
GREETING = "What shall I do? /help lists commands; Ctrl-C stops the agent, and leaves when it rests."
CSS = """
#story { height: 1fr; padding: 0 1; }
#plan, #question { height: auto; max-height: 50%; padding: 0 1; display: none; }
#plan { border-top: solid $primary; }
#question { border-top: solid $warning; color: $warning; overflow-y: auto; }
#status { height: 1; background: $panel; padding: 0 1; }
"""


class CodeApp(App[int]):
    """An app with one workbench, of which it is both the User and the Observer."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", "stop", priority=True)]

    def __init__(self, options: Options, prompt: str | None = None, resume: str | None = None) -> None:
        super().__init__()
        self._options = options
        self._first = prompt
        self._resume = resume
        self._bench: Workbench | None = None
        self._work: asyncio.Task[None] | None = None
        self._pending_answer: asyncio.Future[str] | None = None
        self._streaming: Static | None = None
        self._pieces = ""
        self.transcript: list[str] = []
        """Every entry of the story, as text."""

    def compose(self) -> ComposeResult:
        yield VerticalScroll(id="story", can_focus=False)
        yield Static(id="plan", markup=False)
        yield Static(id="question", markup=False)
        yield Input(placeholder="> ", id="line")
        yield Static("", id="status", markup=False)

    async def on_mount(self) -> None:
        self.query_one("#line", Input).focus()
        self._work = asyncio.ensure_future(self._guarded(self._begin))

    async def _begin(self) -> None:
        try:
            self._bench = await Workbench.open(self._options, self, self)
            self._write(f"{self._bench.root}: {GREETING}", "dim")
            for notice in self._bench.notices:
                self._write(notice, "yellow")
            if self._resume is not None:
                await self._bench.resume(self._resume)
        except Exception as error:
            self.exit(message=f"ostinato: {error}", return_code=2, result=2)
            return
        self._show_status("")
        if self._first is not None:
            await self._take(self._first)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        line, event.input.value = event.value, ""
        if self._pending_answer is not None and not self._pending_answer.done():
            self._pending_answer.set_result(line)
        elif line.strip() and (self._work is None or self._work.done()):
            self._work = asyncio.ensure_future(self._guarded(lambda: self._take(line)))
        elif line.strip():
            event.input.value = line  # the agent is busy: the line stays in the input
            self._show_status("busy: Ctrl-C stops it")

    def action_interrupt(self) -> None:
        """Stop the running work; leave the app when nothing runs."""
        if self._work is not None and not self._work.done():
            self._work.cancel()
        else:
            self.exit(DONE)

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
            self._write("interrupted; the session goes on", "yellow")
            self._show_status("")
        except QuitRequested:
            self.exit(DONE)
        except GatewayRefused as error:
            self._write(f"ostinato: {error}", "red")
            self._show_status("")

    async def _take(self, line: str) -> None:
        bench = self._opened_bench()
        self._write(f"> {line}", "bold")
        if is_command(line):
            text = await command(bench, line)
            self._put(Syntax(text, "diff", background_color="default"), text)
            self._show_status("")
            return
        before = await bench.checkpoints.take()
        self._show_status("thinking")
        try:
            outcome = await bench.prompt(line.removeprefix("/") if line.startswith("//") else line)
        finally:
            self._show_diff(await bench.checkpoints.diff(before, await bench.checkpoints.take()))
        if verdict(outcome):
            self._write(f"ostinato: {verdict(outcome)}", "red")
        self._show_status("")

    # The Observer: what the agent does, as it happens.

    def text(self, piece: str) -> None:
        self._stream(piece, "")

    def reply(self, reply: Reply) -> None:
        self._streaming = None
        self._show_status("working")

    def call(self, call: Call) -> None:
        self._streaming = None
        self._write(headline(call), "bold cyan")
        if plan(call):
            shown = self.query_one("#plan", Static)
            shown.update(Text("\n".join(plan(call))))
            shown.display = True

    def output(self, call: Call, piece: str) -> None:
        self._stream(piece, "dim")

    def edited(self, call: Call, edit: Edit) -> None:
        self._streaming = None
        self._write(f"  changed {edit.path}", "green")

    def result(self, call: Call, observation: ToolResult) -> None:
        streamed, self._streaming = self._streaming is not None, None
        if not streamed or observation.error is not None:
            lines = "\n".join("  " + line for line in shortened(observation))
            self._write(lines, "red" if observation.error else "dim")
        self._show_status("thinking")

    # The User: questions of the agent.

    async def answer(self, question: str) -> str:
        text = (await self._ask(question)).strip()
        if not text:
            raise UserAborted("the user did not answer")
        return text

    async def permit(self, request: PermissionRequest) -> Grant:
        lines = [*question_of(request), CHOICES]
        while (grant := grant_of(await self._ask("\n".join(lines)))) is None:
            lines = [UNCLEAR, *question_of(request), CHOICES]
        return grant

    async def _ask(self, question: str) -> str:
        shown = self.query_one("#question", Static)
        shown.update(Text(visible(question)))
        shown.display = True
        self._show_status("waits for your answer")
        self._pending_answer = asyncio.get_running_loop().create_future()
        try:
            answer = await self._pending_answer
        finally:
            self._pending_answer, shown.display = None, False
        self._write(f"? {question}\n> {answer}", "yellow")
        return answer

    # Output to the screen.

    def _stream(self, piece: str, style: str) -> None:
        if self._streaming is None:
            self._pieces = ""
            self._streaming = self._put(Text(""), "")
        self._pieces += visible(piece)
        self.transcript[-1] = self._pieces
        self._streaming.update(Text(self._pieces.rstrip("\n"), style=style))
        self.query_one("#story", VerticalScroll).scroll_end(animate=False)

    def _write(self, text: str, style: str = "") -> None:
        self._put(Text(text, style=style), text)

    def _show_diff(self, diff: str) -> None:
        if diff:
            self._put(
                Syntax(visible(diff).rstrip("\n"), "diff", background_color="default", word_wrap=True), diff
            )

    def _put(self, shown: Text | Syntax, text: str) -> Static:
        self.transcript.append(text)
        story = self.query_one("#story", VerticalScroll)
        widget = Static(shown, markup=False)
        story.mount(widget)
        story.scroll_end(animate=False)
        return widget

    def _show_status(self, doing: str) -> None:
        bench = self._opened_bench()
        session = bench.conversation
        parts = [f"session {session.session_id[:8]}", bench.fullness, doing]
        self.query_one("#status", Static).update(Text(" · ".join(part for part in parts if part)))

    def _opened_bench(self) -> Workbench:
        if self._bench is None:
            raise QuitRequested  # no repository was opened, so there is nothing to show
        return self._bench


async def full_screen(prompt: str | None, resume: str | None, options: Options) -> int:
    """Run a conversation on the full screen. Return the exit status: 0 done, 2 wrong request."""
    app = CodeApp(options, prompt, resume)
    try:
        status = await app.run_async()
    finally:
        await asyncio.shield(app.close())
    return DONE if status is None else status
