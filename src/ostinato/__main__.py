"""The front door of the command line. `ostinato hook` runs inside others' tools: it loads nothing else."""

import sys


def main() -> int:
    """Run one command and return its exit status."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv[2:]):
        from ostinato.edits.capture.hook_command import main as hook

        return hook(sys.argv[2:])
    from ostinato.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
