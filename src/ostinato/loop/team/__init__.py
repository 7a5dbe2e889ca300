"""One path for a team: its file, its supervisor, its people, and the laptops that join.

`commands` is the command line; `file` writes what a team needs, `up` serves it, `people` knows who works;
`join` and `clients` work on a person's machine. Nobody else comes in.
"""
