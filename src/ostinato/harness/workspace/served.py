"""The model as the gateway describes it: its names, versions and context, and who reads the record."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.harness.client import MODEL, GatewayClient
from ostinato.harness.profiles.profile import CORE, Profile, by_hash

LEAST_TO_SUMMARIZE = 4_096
"""The shortest context in which a model that was not trained to summarise is asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model of a session; a gateway that is away, or of another make, may say less.

    >>> Served(arms=({"name": "main", "version": 3, "share": 1.0},)).version
    3
    """

    name: str = MODEL
    names: tuple[str, ...] = (MODEL,)
    """The names of all models that may be asked for."""
    arms: tuple[Mapping[str, Any], ...] = ()
    """Name, version and share of the sessions of each version that is served."""
    context: int | None = None
    """The most tokens that the model reads."""
    trained_under: str | None = None
    """The hash of the harness that the model was trained under, where that is not the one that was named."""
    recording: Mapping[str, Any] | None = None
    """The user whose sessions are recorded, and whether they train; None where the gateway does not say."""

    @classmethod
    async def of(cls, client: GatewayClient, harness: str, name: str = MODEL) -> "Served":
        """Ask the gateway, without patience; raises GatewayRefused, GatewayUnavailable."""
        one, listed = await asyncio.gather(client.served(name, harness=harness), client.models())
        context, recording = one.get("max_model_len"), one.get("recording")
        arms: list[Any] = next((each["arms"] for each in listed if isinstance(each.get("arms"), list)), [])
        return cls(
            name=name,
            names=tuple(str(each["id"]) for each in listed if "id" in each) or (name,),
            arms=tuple(
                arm for arm in arms if isinstance(arm, dict) and {"name", "version", "share"} <= set(arm)
            ),
            context=context if isinstance(context, int) and context > 0 else None,
            trained_under=one.get("trained_under"),
            recording=recording if isinstance(recording, dict) else None,
        )

    @property
    def version(self) -> int | None:
        """The version that most sessions get."""
        most = max(self.arms, key=lambda arm: arm["share"], default=None)
        return None if most is None else most["version"]

    def fitting(self, wished: Profile, context: int) -> Profile:
        """Return the profile that the model was trained under, where the gateway names one that we know; else
        the wished one, but none that summarises in a context that has no room for it.
        """
        if self.trained_under is not None:
            return by_hash(self.trained_under) or wished
        return CORE if context < LEAST_TO_SUMMARIZE and wished.summarize is not None else wished

    def described(self, version: int | None) -> str:
        """Return the model with the version of the last reply, its arms, and the names to choose from."""
        lines = [named(self.name, version)]
        if len(self.arms) > 1:
            lines += [
                f"  {arm['name']}: version {arm['version']}, {arm['share']:.0%} of the sessions"
                for arm in self.arms
            ]
        others = [name for name in self.names if name != self.name]
        return "\n".join([*lines, f"/model NAME chooses another: {', '.join(others)}"] if others else lines)


def named(name: str, version: int | None) -> str:
    """Return a model in words.

    >>> named("ostinato", 3), named("ostinato", None)
    ('ostinato, version 3', 'ostinato')
    """
    return name if version is None else f"{name}, version {version}"


def recording_notice(recording: Mapping[str, Any]) -> str:
    """Return in one line who may read the sessions of a key and whether they train, as the gateway says."""
    whose = [f"--{name} {recording[name]}" for name in ("organisation", "user") if recording.get(name)]
    granted = recording.get("trained_on") is True
    allowed = (
        "may be trained on and read by others" if granted else "are neither trained on nor read by others"
    )
    change = " ".join(["ostinato consent set", "no" if granted else "yes", *whose])
    return (
        "the gateway records your sessions; you and its operator may read them; they "
        f"{allowed} (`{change}` where the record is changes that for new sessions)"
    )
