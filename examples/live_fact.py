"""A live fact: what the team's own CI said of the work, which it posts as a comment on the session.

ostinato rewards score --definition live_fact.toml --directory runs/team
"""

import ostinato as o


@o.live_fact("ci_green")
def ci_green(session: o.SessionFacts) -> o.Fact | None:
    """Return 1 when CI passed and 0 when it failed, by its last word; None while it has said nothing."""
    said = [signal for signal in session.of(o.SignalKind.COMMENT) if str(signal.value).startswith("ci:")]
    if not said:
        return None
    return o.Fact(value=float(said[-1].value == "ci: green"), evidence=(said[-1].id,))
