"""The reporter: it moves events from the inbox to the journal, and from the journal to the gateway.

`install` imports this folder; `capture` starts the reporter as a process of its own.
"""
