"""Secrets by their place in a layout of several lines: columns of tables, and Kubernetes' secrets."""

import re
from collections.abc import Generator, Iterator

from ostinato.store.redaction.by_name import Match, is_secret_name
from ostinato.store.redaction.likelihood import is_password

TITLES = ("passw", "pwd", "secret", "token", "key", "credential")
LONGEST_HEADER = 400
MARKS = ("|", "│", "\t", ";", ",")
TITLE = re.compile(r"[\s\"'*`]*[\w .@/#()-]{0,40}[\s\"'*`]*")
RULE = re.compile(r"[\s|+│├┼┤┌┬┐└┴┘─=:-]+")
SECRET = re.compile(
    r"(?m)^[ \t-]*\"?kind\"?[ \t]*:[ \t]*\"?Secret\"?[ \t\r]*$|\"kind\"\s{0,4}:\s{0,4}\"Secret\""
)
DATA = re.compile(
    r"(?m)^(?P<indent>[ ]*)(?:- )?(?:data|stringData):[ \t]*\n(?P<yaml>(?:(?P=indent)[ ]+[^\n]*(?:\n|\Z))+)"
    r"|\"(?:data|stringData)\"\s{0,4}:\s{0,4}\{(?P<json>[^{}]*)\}"
)
VALUE_OF_DATA = re.compile(r"[\w.\"-]+[ \t]*:[ \t]*[\"']?(?P<secret>[^\s\"',{}|>][^\s\"',]{3,})")


def by_layout(text: str) -> Iterator[Match]:
    """Yield the secrets in tables whose column has a secret's name, and the data of Kubernetes' secrets."""
    yield from _tables(text)
    if "Secret" in text:
        yield from _kubernetes(text)


def _tables(text: str) -> Iterator[Match]:
    lowered = text.lower()
    for title in TITLES:
        at = lowered.find(title)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            if end < 0:
                break
            header = text[start:end]
            mark = next((each for each in MARKS if each in header), None)
            if mark and len(header) <= LONGEST_HEADER and (columns := _columns(header.split(mark), mark)):
                end = yield from _rows(text, end + 1, mark, header.count(mark) + 1, columns)
            at = lowered.find(title, end)


def _columns(titles: list[str], mark: str) -> list[int]:
    """Return the columns whose title names a secret; none where the line is no header of a table."""
    filled = sum(bool(title.strip()) for title in titles)
    if filled < (2 if mark in "|│" else len(titles)) or not all(map(TITLE.fullmatch, titles)):
        return []
    return [i for i, title in enumerate(titles) if is_secret_name(title.strip(" \"'*`"))]


def _rows(text: str, at: int, mark: str, size: int, columns: list[int]) -> Generator[Match, None, int]:
    """Yield the values in `columns` until a line has not `size` cells, and return where that is."""
    while True:
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        cells = line.split(mark)
        if len(cells) == size:
            for column in columns:
                value = cells[column].strip(" \t\r\"'`")
                if len(value) >= 6 and " " not in value and is_password(value):
                    start = at + sum(len(cell) + 1 for cell in cells[:column]) + cells[column].index(value)
                    yield "table", start, start + len(value)
        if end < 0 or not (len(cells) == size or RULE.fullmatch(line)):
            return at
        at = end + 1


def _kubernetes(text: str) -> Iterator[Match]:
    """Yield every value below `data` and `stringData` in a document of the kind Secret."""
    start = 0
    for document in re.split(r"(?m)(?<=\n)---[^\n]*\n", text) if SECRET.search(text) else ():
        at = text.index(document, start)
        start = at + len(document)
        if SECRET.search(document):
            for data in DATA.finditer(document):
                group = "yaml" if data["yaml"] is not None else "json"
                for value in VALUE_OF_DATA.finditer(document, *data.span(group)):
                    yield "kubernetes_secret", at + value.start("secret"), at + value.end("secret")
