"""The access to the gateway: API keys and their roles."""

from dataclasses import dataclass
from enum import StrEnum

_ID_DIGITS = 12


class Role(StrEnum):
    """A permission of a key; a key has a set of them."""

    USE = "use"  # send requests to the model
    FEEDBACK = "feedback"  # report what became of a session: signals and events
    ADMIN = "admin"  # both, for sessions of any user, and declare that a session is not a person's


DEVELOPER = frozenset({Role.USE, Role.FEEDBACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of the gateway: its user, its roles and its limits.

    >>> ApiKey(hash="ab12", user="ada").may(Role.ADMIN)
    False
    """

    hash: str
    user: str
    roles: frozenset[Role] = DEVELOPER
    organisation: str = ""
    arm: str | None = None
    """Pins the user to an arm, whatever the traffic split says."""
    requests_per_minute: int | None = None
    """None means no limit."""
    concurrent: int | None = None
    """The most model calls at the same time; None means no limit."""
    created_at: float = 0.0
    consent: bool = False
    """True when organisation and user agree to training now."""

    @property
    def id(self) -> str:
        """The name that people use for the key: the beginning of its hash."""
        return self.hash[:_ID_DIGITS]

    def may(self, role: Role) -> bool:
        return role in self.roles or Role.ADMIN in self.roles
