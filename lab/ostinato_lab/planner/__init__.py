"""The planner: what a cycle takes on a given machine, simulated event by event from unit costs.

`events` is the clock and what is shared (processors, links, places); `costs` and `hardware` say what a unit
of work takes and where that is known from; `laptop` and `cluster` make the work of a run and of a cycle;
`report` and `sensitivity` say what came out. The command line comes in by `command.py`.
"""
