"""The names of `__init__.py` with their types; `tests/test_plugins.py` holds the two together."""

from ostinato.extend import PluginError as PluginError
from ostinato.extend import use as use
from ostinato.harness.errors import ToolError as ToolError
from ostinato.harness.profiles.offers import Offer as Offer
from ostinato.harness.profiles.offers import as_it_is as as_it_is
from ostinato.harness.profiles.offers import shown_as as shown_as
from ostinato.harness.profiles.profile import (
    Profile as Profile,
)
from ostinato.harness.profiles.profile import (
    add_profile as add_profile,
)
from ostinato.harness.profiles.profile import (
    profile as profile,
)
from ostinato.harness.tools.definitions import add_tool as add_tool
from ostinato.harness.tools.definitions import tool as tool
from ostinato.rewards.live.facts import SessionFacts as SessionFacts
from ostinato.rewards.live.facts import live_fact as live_fact
from ostinato.rewards.monitors.behaviour import Observed as Observed
from ostinato.rewards.monitors.behaviour import monitor as monitor
from ostinato.rewards.parts.fact import Fact as Fact
from ostinato.rewards.parts.work import Work as Work
from ostinato.rewards.practice.definition import fault as fault
from ostinato.sandbox.base import (
    Backend as Backend,
)
from ostinato.sandbox.base import (
    MachineRefusesError as MachineRefusesError,
)
from ostinato.sandbox.base import (
    Sandbox as Sandbox,
)
from ostinato.sandbox.base import (
    SandboxError as SandboxError,
)
from ostinato.sandbox.base import (
    Spec as Spec,
)
from ostinato.sandbox.choose import choose_backend as choose_backend
from ostinato.sandbox.choose import sandbox_backend as sandbox_backend
from ostinato.sandbox.config import SandboxConfig as SandboxConfig
from ostinato.store import Store as Store
from ostinato.tasks.base import TaskError as TaskError
from ostinato.tasks.base import load_task as load_task
from ostinato.tasks.source import Problem as Problem
from ostinato.tasks.source import TaskSource as TaskSource
from ostinato.tasks.source import task_source as task_source
from ostinato.train.figures.outlets import outlet as outlet
from ostinato.train.objective.corrections import correction as correction
from ostinato.types import (
    Reward as Reward,
)
from ostinato.types import (
    Session as Session,
)
from ostinato.types import (
    Signal as Signal,
)
from ostinato.types import (
    SignalKind as SignalKind,
)
from ostinato.types import (
    StepFigures as StepFigures,
)
from ostinato.types import (
    Task as Task,
)
from ostinato.types import (
    Turn as Turn,
)

__version__: str
