"""The `ostinato hooks` command: it installs and removes the hooks, and shows their state and the blame of a
file.

The command line imports this folder.
"""
