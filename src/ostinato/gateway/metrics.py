"""Metrics for Prometheus. They are numbers only: no text, no user, no session."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from ostinato.gateway.replicas import ReplicaState
from ostinato.types import Turn

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)
ROUTES = {
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/models",
    "/feedback",
    "/v1/events",
    "/v1/logs",
}
"""Paths that are counted by name; any other counts as `other`, so that strangers cannot create labels."""


class _Counts:
    """A counter that finds its labelled children in a dict, since the library's own look-up takes a lock."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._children: dict[tuple[str, ...], Counter] = {}

    def add(self, *labels: str, by: float = 1.0) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._counter.labels(*labels)
        child.inc(by)


class _ReplicaGauges(Collector):
    """The gauges of the replicas that there are when they are asked for."""

    def __init__(self, states: Callable[[], Mapping[str, ReplicaState]]) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("ostinato_engine_requests", "Requests in flight.", labels=["engine"])
        away = GaugeMetricFamily("ostinato_engine_away", "1 while an engine is away.", labels=["engine"])
        for url, state in self._states().items():
            running.add_metric([url], state.running)
            away.add_metric([url], float(state.away))
        return iter((running, away))


class Metrics:
    """The metrics of one gateway, in a registry of their own, so that several gateways fit in one process."""

    def __init__(
        self, held: Callable[[], float], replicas: Callable[[], Mapping[str, ReplicaState]] = dict
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_ReplicaGauges(replicas))
        self._requests = self._counter("requests", "Requests by route and status.", "route", "status")
        self._turns = self._counter("turns", "Turns recorded.", "dialect", "arm", "kind")
        self._untrainable = self._counter("untrainable_turns", "Turns kept but not exact.", "reason")
        self._forks = self._counter("segments", "Turns that went on, forked or began anew.", "how")
        self._broken = self._counter("broken_turns", "Turns that could not be read.", "arm")
        self._tokens = self._counter("tokens", "Tokens of recorded turns.", "direction")
        text = "Requests whose client left."
        self._cancelled = Counter("ostinato_cancelled_requests", text, registry=self.registry)
        self._overhead = Histogram(
            "ostinato_inference_latency_overhead_seconds",
            "Time until the reply began, without the engine's.",
            registry=self.registry,
            buckets=SECONDS,
        )
        self._telemetry = self._counter("events", "Events and log records told by clients.", "outcome")
        held_gauge = Gauge("ostinato_conversations", "Held in memory.", registry=self.registry)
        held_gauge.set_function(held)

    def _counter(self, name: str, text: str, *labels: str) -> _Counts:
        return _Counts(Counter(f"ostinato_{name}", text, labels, registry=self.registry))

    def replied(self, scope: Scope, status: int, overhead_s: float) -> None:
        """Count a reply that began."""
        route = scope["path"] if scope["path"] in ROUTES else "other"
        self._requests.add(route, str(status))
        if route != "other":
            self._overhead.observe(max(0.0, overhead_s))

    def recorded(self, turn: Turn, dialect: str, how: str) -> None:
        """Count a turn that is in the store; `how` is `extended`, `forked` or `root`."""
        self._turns.add(dialect, turn.arm, turn.kind.value)
        self._forks.add(how)
        self._tokens.add("in", by=len(turn.prompt_ids))
        self._tokens.add("out", by=len(turn.completion.ids))
        if turn.untrainable is not None:
            self._untrainable.add(turn.untrainable)
        if turn.broken is not None:
            self._broken.add(turn.arm)

    def telemetry(self, outcome: str, n: int) -> None:
        """Count `n` events that were `taken`, `refused`, or `ignored` because their name is unknown."""
        self._telemetry.add(outcome, by=n)

    def cancelled(self) -> None:
        self._cancelled.inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
