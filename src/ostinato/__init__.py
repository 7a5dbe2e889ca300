"""Train a coding agent inside the harness that ships it, and from the people who use it.

The names here are the door for plug-ins (`docs/plugins.md`): each is imported from its room when it is first
asked for, so that `import ostinato` costs nothing.
"""

from importlib import import_module

__version__ = "0.1.0"

ROOMS = {
    "deploy.terms": ("TrialSession", "claim"),
    "engine.config": ("EngineServerConfig", "engine_backend"),
    "exchange.record": ("OpenRecord", "open"),
    "exchange.tables": ("Table",),
    "exchange.work": ("attempt", "score", "verify"),
    "extend": ("PluginError", "use"),
    "harness.agent": ("HarnessConfig",),
    "harness.episode": ("Episode",),
    "harness.errors": ("ToolError",),
    "harness.export": ("exporter",),
    "harness.profiles.offers": ("Offer", "as_it_is", "shown_as"),
    "harness.profiles.profile": ("Profile", "add_profile", "profile"),
    "harness.session_log": ("LogEvent", "LogEventKind"),
    "harness.tools.definitions": ("add_tool", "tool"),
    "model.families": ("Renderer",),
    "model.families.loading": ("family",),
    "model.tokenizer": ("Tokenizer",),
    "rewards.live.facts": ("SessionFacts", "live_fact"),
    "rewards.monitors.behaviour": ("Observed", "monitor"),
    "rewards.parts.fact": ("Fact",),
    "rewards.parts.work": ("Work",),
    "rewards.practice.definition": ("fault",),
    "sandbox.base": ("Backend", "MachineRefusesError", "Sandbox", "SandboxError", "Spec"),
    "sandbox.choose": ("choose_backend", "sandbox_backend"),
    "sandbox.config": ("SandboxConfig",),
    "sandbox.exam.verifier": ("Verification",),
    "store": ("Store",),
    "tasks.base": ("TaskError", "load_task"),
    "tasks.source": ("Problem", "TaskSource", "task_source"),
    "train.figures.outlets": ("outlet",),
    "train.base": ("Trainable",),
    "train.config": ("TrainerConfig",),
    "train.objective.corrections": ("correction",),
    "train.objective.group": ("baseline",),
    "train.objective.loss": ("SampledTokens", "loss"),
    "train.opened": ("trainer",),
    "types": (
        "Checkpoint",
        "Reward",
        "RewardPart",
        "Session",
        "Signal",
        "SignalKind",
        "Source",
        "StepFigures",
        "Task",
        "Turn",
        "Verdict",
    ),
}
"""The public names by the room that has them. What is not here may change from one version to the next."""
_ROOM_OF = {name: room for room, names in ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'ostinato' has no attribute {name!r}")
    return getattr(import_module(f"ostinato.{_ROOM_OF[name]}"), name)


def __dir__() -> list[str]:
    return ["__version__", *sorted(_ROOM_OF)]
