"""Texts that mean harm wherever a record has a text, and what a page of them must not hold."""

import json
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

PAYLOADS = (
    '"><script>alert(1)</script>',
    "' onmouseover=alert(1) x='",
    "</textarea></title></style><svg/onload=alert(1)>",
    "javascript:alert(1)//",
    "//evil.example/%0d%0aSet-Cookie:x=1",
    "{{ 7*7 }}{% raw %}${7*7}",
    "\r\nevent: x\ndata: y\n\n<!--",
    "=cmd|' /C calc'!A0\t@SUM(1)",
    "\x1b]0;x\x07\u202egnp.exe\u200b\ufeff",
    "../../../../etc/passwd\\..\\x",
)
ALL = "".join(PAYLOADS)


class Page(HTMLParser):
    """The elements and attributes of a page that a browser would act upon."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "formaction"):
                self.faults.append(f"<{tag} {name}={value!r}>")
            if name in ("href", "src", "action", "xlink:href") or name.startswith("hx-"):
                parts = urlsplit(value or "")
                if parts.scheme or parts.netloc:
                    self.faults.append(f"<{tag} {name}={value!r}>")
        inline = tag == "script" and "src" not in dict(attrs)
        if inline or tag in ("iframe", "object", "embed", "base", "style"):
            self.faults.append(f"<{tag}>")

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"<!--{data}-->")


def poisoned(value: Any) -> Any:
    """Return a value of a column with every text in it followed by all payloads; keys stay."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            return value + ALL
        return json.dumps(_within(inner)) if isinstance(inner, dict | list) else value
    return value


def _within(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _within(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_within(each) for each in value]
    return value + ALL if isinstance(value, str) else value
