"""The front door: one HTTP process without torch that picks an arm, keeps tokens exact and records every
turn.

A turn is recorded before it is answered. `app` and `server` are entered from outside; everything else is
reached over HTTP.
"""
