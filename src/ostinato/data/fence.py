"""The fence against contamination: no text that a task is measured by is trained on.

A *run* is thirteen words, the length of Brown et al., "Language models are few-shot learners" (2020),
appendix C. `bench.fence` measures by the same runs how much of a task a model may have seen.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

WORDS = 13
SHARED = 20
"""The runs that a file may not share with one task: more than thirty words in a row. Of a task with fewer
than twice as many, half of them."""
FENCED = "shares text with a task"
_WORD = re.compile(r"\w+|[^\w\s]")
Gram = tuple[str, ...]


def grams(text: str) -> Iterator[Gram]:
    """Yield every run of thirteen words, in lower case; a sign is a word."""
    words = _WORD.findall(text.lower())
    return zip(*(words[start:] for start in range(WORDS)), strict=False)


class Fence:
    """The runs of the texts of tasks.

    >>> Fence([" ".join("abcdefghijklmnopq")]).shares("x " + " ".join("abcdefghijklmnopq"))
    True
    """

    def __init__(self, tasks: Iterable[str]) -> None:
        self._tasks: dict[Gram, list[int]] = {}
        self._least: list[int] = []
        for number, text in enumerate(tasks):
            runs = set(grams(text))
            self._least.append(min(SHARED, max(1, len(runs) // 2)))
            for run in runs:
                self._tasks.setdefault(run, []).append(number)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._least)

    def shares(self, text: str) -> bool:
        """Return whether a text is too much like one of the tasks."""
        if not self._tasks:
            return False
        counts = Counter(number for run in set(grams(text)) for number in self._tasks.get(run, ()))
        return any(count >= self._least[number] for number, count in counts.items())
