"""Nouns of the record as a notebook reads them: one after the other, or as a table."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ostinato import extras
from ostinato.types import Reward, Signal, to_json

if TYPE_CHECKING:
    import pandas
    import pyarrow

T = TypeVar("T")
TABLE = "a table of the record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[T]):
    """Nouns of one kind, read again a page at a time whenever somebody goes through them.

    >>> [row["name"] for row in Table(pages=lambda: iter([[], []])).rows()]
    []
    """

    pages: Callable[[], Iterator[Sequence[T]]]

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each noun as one row: the fields of a noun within it are `completion.ids` and so on, and what
        has keys of its own, as a verdict's evidence, is JSON."""
        return map(_row, self)

    def to_arrow(self) -> "pyarrow.Table":
        """Return all of them as one Arrow table. Raises MissingPackageError."""
        extras.need("pyarrow", TABLE)
        import pyarrow

        return pyarrow.Table.from_pylist(list(self.rows()))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all of them as one data frame. Raises MissingPackageError."""
        extras.need("pandas", TABLE)
        import pandas

        return pandas.DataFrame(self.rows())


def _row(noun: Any) -> dict[str, Any]:
    written, row = to_json(noun), dict[str, Any]()
    for each in fields(noun):
        value = getattr(noun, each.name)
        if is_dataclass(value):
            inner = written[each.name]
            row |= {f"{each.name}.{name}": _cell(value) for name, value in inner.items()}
        else:
            row[each.name] = _cell(written[each.name])
    if isinstance(noun, Reward):
        row["total"] = noun.total
    if isinstance(noun, Signal):  # a column has one type
        text = isinstance(noun.value, str)
        row |= {"value": None if text else noun.value, "text": noun.value if text else None}
    return row


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else value
