"""The CPU time of each kind of process below this one, for the option `--trace` of `benchmarks.cluster`."""

import os
import threading
from collections import Counter
from pathlib import Path

from benchmarks.faults import descendants

LOOK_S = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


class CpuByProcess(threading.Thread):
    """Looks at all descendants twice a second; what a process did after the last look at it is left out."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._seen: dict[tuple[int, str], tuple[str, float]] = {}
        self._before: dict[tuple[int, str], float] = {}

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Note the CPU seconds of every descendant, under the name that it has now."""
        for pid in [os.getpid(), *descendants(os.getpid(), lambda words: True)]:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0]:
                seconds = (int(fields[11]) + int(fields[12])) / TICKS
                self._seen[pid, fields[19]] = kind_of(words), seconds

    def begin(self) -> None:
        """Count from now on."""
        self.look()
        self._before = {process: seconds for process, (_, seconds) in self._seen.items()}

    def so_far(self) -> dict[str, list[float]]:
        """Return the CPU seconds and the number of processes of each kind since `begin`, most first."""
        self.look()
        spent, count = Counter[str](), Counter[str]()
        for process, (kind, seconds) in self._seen.items():
            if (more := seconds - self._before.get(process, 0.0)) > 0:
                spent[kind] += more  # type: ignore[assignment]
                count[kind] += 1
        return {kind: [round(seconds, 2), count[kind]] for kind, seconds in spent.most_common()}

    def end(self) -> None:
        self._over.set()
        self.join()


def kind_of(words: list[str]) -> str:
    """Return what a process is, by the words of its command line.

    >>> kind_of(["python", "-m", "ostinato.engine.server", "--config"])
    'ostinato.engine.server'
    """
    if words[0].startswith("ray::"):
        return words[0].partition(".")[0]
    if "-m" in words:
        return words[words.index("-m") + 1]
    scripts = [word for word in words if word.endswith(".py")]
    if scripts:
        return "/".join(Path(scripts[0]).parts[-3:])
    return "sandbox" if "-c" in words else Path(words[0]).name
