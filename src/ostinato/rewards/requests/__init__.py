"""The requests of live sessions: their kinds, and the strata that rewards are compared within."""
