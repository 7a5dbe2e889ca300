"""`python -m ostinato.fleet.server.placed_front`: the front of a run's own nodes, as a service of the run."""

import sys
from collections.abc import Sequence

from ostinato.config import settings_of
from ostinato.fleet.server.serve import FrontConfig, run, serve_front


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve with the settings from the table of a run's file; return the exit status."""
    program = "python -m ostinato.fleet.server.placed_front"
    return run(serve_front(settings_of(FrontConfig, arguments, program, __doc__)))


if __name__ == "__main__":
    sys.exit(main())
