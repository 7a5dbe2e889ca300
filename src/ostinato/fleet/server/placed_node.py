"""`python -m ostinato.fleet.server.placed_node`: a node of a fleet as a service of a run."""

import sys
from collections.abc import Sequence

from ostinato.config import settings_of
from ostinato.fleet.server.serve import NodeConfig, run, serve_node


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve with the settings from the table of a run's file; return the exit status."""
    program = "python -m ostinato.fleet.server.placed_node"
    return run(serve_node(settings_of(NodeConfig, arguments, program, __doc__)))


if __name__ == "__main__":
    sys.exit(main())
