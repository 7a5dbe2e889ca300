"""Sessions of a scripted model in the real harness, sandbox and verifier, without gateway and engine."""

from collections.abc import Callable, Sequence

from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import Ask, Message, Reply, TokenCount
from ostinato.harness.conversation import Conversation
from ostinato.harness.episode import CardUser, Episode, changes_left, verified
from ostinato.harness.profiles.profile import profile
from ostinato.harness.users import Permitting
from ostinato.model.families import HermesRenderer, assistant_message, parse_text, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Spec
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.tasks.pebble import pebble_of
from ostinato.types import Completion, FinishReason, Signal, Source, Task, Turn, new_id

Says = Callable[[Sequence[Message]], str]
"""From the messages so far to the next assistant text."""


class ScriptedModel:
    """A model client that says what a function says, and keeps its turns as a gateway would record them."""

    def __init__(self, says: Says, renderer: HermesRenderer) -> None:
        self._says = says
        self._renderer = renderer
        self.turns: list[Turn] = []

    async def reply(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Reply:
        message = assistant_message(parse_text(self._says(ask.messages)), [new_id()])
        prompt = tuple(self._renderer.render(ask.messages, ask.tools))
        said = tuple(self._renderer.say(message))
        n = len(said)
        completion = Completion(ids=said, logprobs=(0.0,) * n, versions=(-1,) * n, finish=FinishReason.STOP)
        self.turns.append(
            Turn(
                session_id=ask.session_id,
                index=len(self.turns),
                segment=0,
                arm="scripted",
                prompt_ids=prompt,
                completion=completion,
                started_at=0.0,
                latency_s=0.0,
                kind=ask.kind,
            )
        )
        usage = TokenCount(prompt=len(prompt), completion=n, reasoning=0)
        return Reply(message=message, finish="stop", tokens=len(prompt) + n, usage=usage)

    async def signal(self, signal: Signal) -> None: ...


class Desk:
    """A place for sessions: plain processes, a verifier, and a tokenizer of the tasks' own text."""

    def __init__(self, tasks: Sequence[Task], limits: HarnessConfig) -> None:
        self._backend = ProcessBackend()
        self._verifier = Verifier(self._backend)
        shown = profile(limits.profile)
        corpus = [text for pebble in map(pebble_of, tasks) if pebble for text in pebble.files.values()]
        tokenizer = Tokenizer.train(corpus, 512, skeletons(shown.system, shown.tools))
        self.renderer = HermesRenderer(tokenizer)

    async def session(
        self, task: Task, says: Says, limits: HarnessConfig
    ) -> tuple[Episode, Conversation, list[Turn]]:
        """Run one session to its end and judge it. Raises RuntimeError for a void one."""
        model = ScriptedModel(says, self.renderer)
        sandbox = await self._backend.create(Spec(repo=task.repo))
        try:
            agent = Agent(model, sandbox, Permitting(CardUser(task)), limits)
            conversation = agent.converse(new_id(), source=Source.BENCH, task_id=task.id)
            outcome = await agent.prompt(conversation, task.instruction)
            episode = await verified(self._verifier, task, outcome, await changes_left(sandbox))
        finally:
            await sandbox.destroy()
        if episode.void is not None:
            raise RuntimeError(f"{task.id}: {episode.void}")
        return episode, conversation, model.turns
