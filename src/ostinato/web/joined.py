"""The gateway that this machine's person works with: from the environment first, then from the person's file.

``~/.config/ostinato/gateway.toml``, which `ostinato join` writes for nobody else to read::

    url = "https://models.example"
    key = "…"
    content = false      # true: hooks send the text of edits too
"""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

URL, KEY = "OSTINATO_URL", "OSTINATO_KEY"
"""The environment variables that go before the file."""
NO_KEY = "no API key: set OSTINATO_KEY, name a file that holds it with --key-file, or use `ostinato join`"
LOCAL = "http://127.0.0.1:8080"
"""The address of a gateway on this machine, which commands use where none is named."""


class JoinedError(Exception):
    """The error for a file that cannot be used; the message names the line or the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The gateway's address and key, and whether text may be sent. Without an address nothing is sent.

    >>> Joined(url="", key="").content
    False
    """

    url: str
    key: str
    content: bool = False


def joined(url: str | None = None) -> Joined:
    """Return the gateway at `url`, else the one that the environment or the file names.

    The key of the file goes to the address of the file alone. Raise JoinedError for a file that is wrong.
    """
    values = _file(joined_path())
    there, key = str(values.get("url", "")), str(values.get("key", ""))
    chosen = url or os.environ.get(URL) or there
    return Joined(
        url=chosen,
        key=os.environ.get(KEY) or (key if there in ("", chosen) else ""),
        content=values.get("content") is True,
    )


def joined_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "ostinato" / "gateway.toml"


def keep(url: str, key: str) -> Path:
    """Write the file, readable for its owner alone; return its path."""
    path, content = joined_path(), _file(joined_path()).get("content") is True
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    text = f"url = {json.dumps(url)}\nkey = {json.dumps(key)}\ncontent = {str(content).lower()}\n"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return path


def _file(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise JoinedError(f"{path}: {error}") from error
    unknown = sorted(set(values) - {"url", "key", "content"})
    if unknown:
        raise JoinedError(f"{path}: unknown name {unknown[0]!r}, use url, key and content")
    return values
