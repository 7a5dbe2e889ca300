"""A claim of a trial: people wait less for the same work.

[live]
claim = "faster"
reward_margin = 0.05
"""

import ostinato as o


@o.claim("faster")
def faster(session: o.TrialSession) -> float | None:
    """Return the seconds that a turn of the session took, None where none was answered."""
    return session.gains.get("latency")
