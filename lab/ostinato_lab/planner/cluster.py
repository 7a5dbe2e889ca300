"""A cluster and the work of one cycle on it, in numbers: rates from unit costs, no clock yet."""

from dataclasses import dataclass

from ostinato_lab.planner.costs import Costs, PlanError
from ostinato_lab.planner.hardware import Accelerator, PlannedModel, ServedRegion, check_trainers, replica_of

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The machines, the regions and the traffic that a cycle is simulated for.

    Trainers and engines are separate GPUs; the engines are spread evenly over the regions, serve people and
    sample practice. Tensor and expert parallelism are within the published shares of peak.
    """

    model: PlannedModel
    kind: Accelerator
    trainers: float
    engines: float
    regions: tuple[ServedRegion, ...]
    sandboxes: float
    """Places for sandboxes, of all regions together."""
    traffic: float
    """Live sessions a day."""
    costs: Costs

    def check(self) -> None:
        """Raise PlanError where the model does not fit, or people alone keep the engines busy."""
        check_trainers(self.model, self.kind, self.trainers, self.costs)
        replica_of(self.model, self.kind, self.engines / len(self.regions), self.costs)
        if self.live_gpus() > 0.9 * self.engines:
            raise PlanError(
                f"{self.traffic:,.0f} sessions a day keep {self.live_gpus():.0f} GPUs busy, and there are "
                f"{self.engines:g} for engines: give more GPUs, or less traffic"
            )

    # --- rates ----------------------------------------------------------------------------------------------

    def train_tokens_per_s(self) -> float:
        flops = self.trainers * self.kind.flops * self.costs["cluster.train_share"]
        return flops / (self.costs["cluster.train_flops"] * self.model.active)

    def read_s(self) -> float:
        """Return the GPU seconds of one token read."""
        return 2 * self.model.active / (self.kind.flops * self.costs["cluster.read_share"])

    def sample_s(self) -> float:
        """Return the GPU seconds of one token sampled."""
        return 2 * self.model.active / (self.kind.flops * self.costs["cluster.decode_share"])

    def turn_s(self) -> tuple[float, float]:
        """Return the GPU seconds of one turn: reading, and sampling."""
        costs = self.costs
        return costs["cluster.read_tokens"] * self.read_s(), costs["cluster.sampled_tokens"] * self.sample_s()

    def reading_share(self) -> float:
        """Return the share of engine GPUs that read, so that both kinds are as busy."""
        read, sample = self.turn_s()
        return read / (read + sample)

    def live_gpus(self) -> float:
        """Return the engine GPUs that people keep busy."""
        turns = self.traffic / DAY_S * self.costs["cluster.live_turns"]
        return turns * sum(self.turn_s())

    # --- sizes ----------------------------------------------------------------------------------------------

    def tokens_of(self, turns: float) -> float:
        """Return the tokens of a session of so many turns, which a trainer learns from."""
        return turns * (self.costs["cluster.read_tokens"] + self.costs["cluster.sampled_tokens"])

    def delta(self) -> float:
        """Return the bytes of a version's delta."""
        return self.model.weights * self.costs["cluster.delta_bytes"]

    def encode_s(self) -> float:
        """Return the seconds in which all ranks together encode a version, each its own shard of BF16."""
        cores = self.trainers * self.costs["cluster.codec_cores"]
        return 2 * self.model.weights / (cores * self.costs["cluster.encode_bytes"])

    def replica(self) -> int:
        """Return the GPUs of one engine."""
        return replica_of(self.model, self.kind, self.engines / len(self.regions), self.costs)

    def decode_s(self) -> float:
        """Return the seconds in which a replica's hosts rebuild the weights, before the swap."""
        cores = self.replica() * self.costs["cluster.codec_cores"]
        return 2 * self.model.weights / (cores * self.costs["cluster.decode_bytes"])

    def pause_s(self) -> float:
        """Return the seconds for which an engine samples nothing: its shard goes from host to GPU."""
        shard = self.model.weights * self.model.serving_bytes / self.replica()
        return self.costs["cluster.swap_fixed_s"] + shard / self.costs["cluster.load_bytes"]

    def pods_per_s(self) -> float:
        """Return the sandboxes that one scheduler on one core places a second."""
        return 1 / self.costs["cluster.pod_place_s"]
