"""Train a coding agent inside the harness that ships it, and from the people who use it."""

__version__ = "0.1.0"
