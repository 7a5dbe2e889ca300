"""The files that are left out: those that `.gitignore` names, and those with secrets, which are never sent.

Patterns mean what gitignore(5) says, but a tracked file that is ignored is left out here, while git keeps it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath

SECRETS = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".htpasswd"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.asc", "id_rsa*", "id_dsa*"),
    *("id_ecdsa*", "id_ed25519*", "credentials", "credentials.json", ".git-credentials", "secrets.*"),
)
NOT_SECRET = {".env.example", ".env.sample", ".env.template", "secrets.py"}
CACHES = {
    *(".git", "node_modules", "__pycache__", ".venv", ".tox", ".nox", ".eggs", ".nyc_output", "htmlcov"),
    *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"),
}
LEFT_BEHIND = ("*.pyc", "*.pyo", ".coverage", ".coverage.*", ".DS_Store")
"""Files that interpreters, coverage and file managers leave behind."""
GITIGNORE = ".gitignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One line of a `.gitignore`."""

    regex: re.Pattern[str]
    """The expression that matches a path relative to the folder of the file."""
    negated: bool
    folders_only: bool


def is_secret(path: str) -> bool:
    """Return whether the name says that the file holds keys or passwords.

    >>> is_secret("deploy/.env.production"), is_secret("src/environment.py")
    (True, False)
    """
    name = PurePosixPath(path).name.lower()
    return name not in NOT_SECRET and any(fnmatchcase(name, pattern) for pattern in SECRETS)


def is_cache(path: str) -> bool:
    """Return whether the path lies in a folder that tools fill, or is a file that they leave behind."""
    *folders, name = path.split("/")
    return not CACHES.isdisjoint(folders) or any(fnmatchcase(name, pattern) for pattern in LEFT_BEHIND)


class Ignored:
    """The rules of every `.gitignore` of a tree, from the path of each to its text."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._rules = {_folder(path): parse(text) for path, text in files.items()}
        self._known: dict[str, bool] = {"": False}

    def __contains__(self, path: str) -> bool:
        """Return whether the file at `path`, or a folder it lies in, is ignored."""
        folder = _folder(path)
        return self._folder(folder) or self._verdict(path, is_folder=False)

    def _folder(self, folder: str) -> bool:
        if folder not in self._known:
            above = self._folder(_folder(folder))
            self._known[folder] = above or self._verdict(folder, is_folder=True)
        return self._known[folder]

    def _verdict(self, path: str, *, is_folder: bool) -> bool:
        """Return the verdict of the last rule that matches, of the deepest folder that has one."""
        for folder in _above(path):
            inner = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self._rules.get(folder, ())):
                if (is_folder or not rule.folders_only) and rule.regex.fullmatch(inner):
                    return not rule.negated
        return False


def parse(text: str) -> tuple[Pattern, ...]:
    """Return the patterns of a `.gitignore` in order; a line that git does not understand matches nothing."""
    return tuple(_patterns(text.removeprefix("\ufeff").split("\n")))


def _patterns(lines: Iterable[str]) -> Iterable[Pattern]:
    for line in lines:
        pattern = _without_trailing_spaces(line.removesuffix("\r"))
        negated = pattern.startswith("!")
        pattern = pattern.removeprefix("!") if negated else pattern
        folders_only = pattern.endswith("/")
        body = pattern.removesuffix("/")
        if not body or (not negated and pattern.startswith("#")):
            continue
        regex = _regex(body)
        if regex is not None:
            yield Pattern(regex=regex, negated=negated, folders_only=folders_only)


def _without_trailing_spaces(line: str) -> str:
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    return line


@cache
def _regex(pattern: str) -> re.Pattern[str] | None:
    """Return the regular expression of a pattern without its final slash.

    A slash elsewhere ties it to the folder.
    """
    anchored = "/" in pattern
    parts = pattern.removeprefix("/").split("/")
    whole = "" if anchored else "(?:.*/)?"
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if len(part) > 1 and not part.strip("*") and anchored:
            whole += ".*" if last else "(?:.*/)?"
            continue
        piece = _piece(part)
        if piece is None:
            return None
        whole += piece + ("" if last else "/")
    return re.compile(whole, re.DOTALL)


TOKEN = re.compile(
    r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)|\[(?P<set>[!^]?\]?[^\]]*)\]|(?P<plain>.)", re.DOTALL
)


def _piece(part: str) -> str | None:
    """Return the regular expression of a part between slashes; None when it ends in a lone backslash."""
    if (len(part) - len(part.rstrip("\\"))) % 2:
        return None
    return "".join(map(_token, TOKEN.finditer(part)))


def _token(match: re.Match[str]) -> str:
    if match["stars"]:
        return "[^/]*"
    if match["any"]:
        return "[^/]"
    if match["set"] is not None:
        return _set(match["set"])
    return re.escape(match["escaped"] or match["plain"])


def _set(body: str) -> str:
    negated = body[:1] in {"!", "^"}
    inside = re.sub(r"([\\\[\]&~|^])", r"\\\1", body[1:] if negated else body)
    try:
        re.compile(f"[{inside}]")
    except re.error:
        return r"(?!)"
    return f"(?!/)[{'^' if negated else ''}{inside}]"


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _above(path: str) -> Iterable[str]:
    """Yield the folders that `path` lies in, the deepest first and the root last."""
    while path:
        path = _folder(path)
        yield path
