"""A person's machine joins a team: the key, consent in plain words, hooks, and the clients that they name.

The machine makes the key, keeps it before it asks, and sends its hash. So an answer that is lost on the way
costs nothing: the same line is typed again, and the same key becomes theirs.
"""

import argparse
import http.client
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from ostinato.edits.git import GitCommandError
from ostinato.edits.install.claude import install_claude
from ostinato.edits.install.git_hooks import InstallError, find, install
from ostinato.loop.team.clients import CLIENTS, Membership
from ostinato.store.accounts import hash_key, new_key
from ostinato.web.joined import joined, joined_path, keep

ASKED_S = 20.0
CONSENT = """\
The team records every session: what you type, what the model reads and answers, what becomes of its edits.
Whoever runs the gateway can read that. May your sessions also be used to train the team's model? A trained
model may repeat what it learnt from. You may change your mind at any time: ostinato join --consent no
May they? [y/N] """
HOOKS = "Repositories in which hooks report what becomes of the agent's edits (paths; Enter for none): "


class JoinRefusedError(ValueError):
    """This machine did not join; the message says why, and what was done."""


def join(options: argparse.Namespace) -> Iterator[str]:
    """Join with a code, or change what was said on joining; yield what was done. Raises JoinRefusedError."""
    consent = None if options.consent is None else options.consent == "yes"
    if options.code is not None:
        url = _address(options.url)
        if url.startswith("http://") and urlsplit(url).hostname not in ("127.0.0.1", "localhost"):
            yield f"{url} has no TLS: everybody on the way can read the key and all that you type"
        if consent is None and sys.stdin.isatty():
            consent = _agreed(CONSENT)
        said, key, path = _exchanged(url, options.code, consent)
        yield f"you are {said['user']} at {url}; the key is in {path}, which you alone can read"
        yield _trained(said, consent)
    else:
        known = joined(options.url)
        url, key = known.url, known.key
        if not url or not key:
            raise JoinRefusedError("this machine has joined no team: ostinato join ADDRESS CODE")
        if consent is not None:
            yield _trained(_asked(f"{url}/consent", {"granted": consent}, key), consent)
            if options.repository is None and options.client is None:
                return
    yield from _set_up(options, url, key)


def _address(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise JoinRefusedError(f"{text!r} is no address: type the line as `ostinato team add` printed it")
    return text.rstrip("/")


def _exchanged(url: str, code: str, consent: bool | None) -> tuple[dict[str, Any], str, Path]:
    """Return the answer of the gateway, the key, and where it is kept."""
    pending = joined_path().with_name("joining.json")
    try:
        held: dict[str, str] = json.loads(pending.read_text()) if pending.exists() else {}
    except json.JSONDecodeError:
        held = {}  # a write of ours that was cut short, before anything was sent
    key = held.get(hash_key(code)) or new_key()
    pending.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(pending, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({hash_key(code): key}, file)
    answer = _asked(f"{url}/join", {"code": code, "key": hash_key(key), "consent": consent})
    path = keep(url, key)
    pending.unlink()
    return answer, key, path


def _trained(said: Mapping[str, Any], consent: bool | None) -> str:
    if said["trained_on"]:
        return "your sessions from now on may be trained on"
    if consent:
        return f"your sessions are not trained on before {said['organisation']} agrees too"
    return "your sessions are not trained on"


def _set_up(options: argparse.Namespace, url: str, key: str) -> Iterator[str]:
    """Install hooks and set up clients: those that are named, or else those that the person agrees to."""
    home, typed = Path.home(), sys.stdin.isatty()
    folders, clients = options.repository or [], options.client or []
    if options.repository is None and typed:
        folders = [Path(word).expanduser() for word in input(HOOKS).split()]
    if options.client is None and typed:
        there = [name for name, (folder, _) in CLIENTS.items() if (home / folder).is_dir()]
        clients = [name for name in there if _agreed(f"Set up {name} for this gateway? [y/N] ")]
    refused = []
    for folder in folders:
        try:
            repo = find(folder)
            yield from install(repo)
            if "claude-code" in clients:
                yield from install_claude(Path(repo.root), shared=False)
        except (InstallError, GitCommandError) as error:
            refused.append(str(error))
    member = _membership(url, key) if clients else None
    for name in clients:
        try:
            assert member is not None
            yield CLIENTS[name][1](home, member)
        except (InstallError, OSError) as error:
            refused.append(f"{name}: {error}")
    if refused:
        raise JoinRefusedError("you have joined, and this stays as it was:\n  " + "\n  ".join(refused))
    yield "next, in a git repository: ostinato code"


def _membership(url: str, key: str) -> Membership:
    model = _asked(f"{url}/v1/models", None, key)["data"][0]
    return Membership(url=url, key=key, model=model["id"], context=model.get("max_model_len", 0))


def _asked(url: str, body: Mapping[str, Any] | None, key: str = "") -> dict[str, Any]:
    """Return the gateway's answer. Raises JoinRefusedError with its own words."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = Request(url, None if body is None else json.dumps(body).encode(), headers)  # noqa: S310
    try:
        with urlopen(request, timeout=ASKED_S) as answer:  # noqa: S310 (an address of http was checked)
            said: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        raise JoinRefusedError(f"{url}: {_message(error)}") from None
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise JoinRefusedError(
            f"{url} does not answer ({reason}): nothing is lost, type the same line again later"
        ) from error
    except ValueError as error:
        raise JoinRefusedError(f"{url} is no gateway of ostinato: it answers no JSON") from error
    return said


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}: is this the address of an ostinato gateway?"


def _agreed(question: str) -> bool:
    return input(question).strip().lower() in ("y", "yes")
