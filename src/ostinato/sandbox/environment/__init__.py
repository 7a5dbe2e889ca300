"""Task environments: images, which replace the machine's programs in a sandbox (`ostinato tasks build`).

It imports only `sandbox/base` and `sandbox/files`; `commands` comes in by the command line.
"""
