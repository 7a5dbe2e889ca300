"""The settings of the reporter, from the environment first, then from the user's file.

``~/.config/ostinato/hooks.toml``::

    url = "http://127.0.0.1:8080"
    key = "…"
    content = false      # true: the text of edits is sent too
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path


class SettingsError(Exception):
    """The error for a file that cannot be used; the message names the line or the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The gateway's address and key, and whether text may be sent. Without an address nothing is sent.

    >>> Settings(url="", key="").content
    False
    """

    url: str
    key: str
    content: bool = False


def settings() -> Settings:
    """Return the settings. Raise SettingsError for a file that cannot be read."""
    values = _file(settings_path())
    return Settings(
        url=os.environ.get("OSTINATO_URL") or str(values.get("url", "")),
        key=os.environ.get("OSTINATO_KEY") or str(values.get("key", "")),
        content=values.get("content") is True,
    )


def settings_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "ostinato" / "hooks.toml"


def _file(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from error
    unknown = sorted(set(values) - {"url", "key", "content"})
    if unknown:
        raise SettingsError(f"{path}: unknown name {unknown[0]!r}, use url, key and content")
    return values
