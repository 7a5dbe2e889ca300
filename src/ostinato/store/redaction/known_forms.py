"""Secrets of known form: tokens with a vendor's prefix, framed keys, and places in files of a known layout.

A form is searched only where one of its literal parts occurs: that costs one search of the text per part and
keeps clean text cheap. Every pattern is linear: repetitions are bounded or begin only where their run begins,
and a match that may be longer than its bound is followed to the end of its run once (`run_ends.py`).
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ostinato.store.redaction.by_name import Match, by_name
from ostinato.store.redaction.likelihood import is_password, is_token
from ostinato.store.redaction.run_ends import RunEnds

WORD = r"[A-Za-z0-9_\-]"
LETTERS = r"[A-Za-z0-9]"


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of a vendor's token: literal parts of which one must occur, and the pattern of the whole."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]


def _form(kind: str, anchors: str, pattern: str) -> _Form:
    return _Form(kind, tuple(anchors.split()), re.compile(rf"(?<!{LETTERS})(?:{pattern})"))


FORMS = (
    _form("aws_key", "AKIA ASIA AROA AIDA", r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _form("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"gh[pousr]_{LETTERS}{{30,255}}"),
    _form("github_token", "github_pat_", r"github_pat_\w{40,512}+"),
    _form("gitlab_token", "glpat- glrt- gldt- glcbt-", rf"gl(?:pat|rt|dt|cbt)-{WORD}{{20,512}}+"),
    _form(
        "slack_token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe xapp-",
        r"(?:xox[abeprs]|xapp)(?:\.xox[bp])?-[\w-]{10,512}+",
    ),
    _form(
        "slack_webhook", "hooks.slack.com", r"(?<=hooks\.slack\.com/)(?:services|workflows)/[\w/+-]{20,512}+"
    ),
    _form("api_key", "sk-", rf"sk-(?:ant-|proj-|svcacct-|admin-|or-|lf-)?{WORD}{{20,512}}+"),
    _form("stripe_key", "_live_ _test_", rf"(?:sk|rk|pk|whsec)_(?:live|test)_{LETTERS}{{16,512}}+"),
    _form("google_key", "AIza", rf"AIza{WORD}{{35}}"),
    _form("google_token", "ya29. GOCSPX-", rf"(?:ya29\.|GOCSPX-){WORD}{{20,512}}+"),
    _form("npm_token", "npm_", rf"npm_{LETTERS}{{36}}"),
    _form("pypi_token", "pypi-", rf"pypi-AgE{WORD}{{40,512}}+"),
    _form("huggingface_token", "hf_", rf"hf_{LETTERS}{{30,512}}+"),
    _form("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _form("sendgrid_key", "SG.", rf"SG\.{WORD}{{16,32}}\.{WORD}{{16,64}}"),
    _form("twilio_key", "SK AC", r"(?:SK|AC)[0-9a-f]{32}(?![0-9a-zA-Z])"),
    _form("shopify_token", "shpat_ shpss_ shpca_ shppa_", r"shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}"),
    _form("databricks_token", "dapi", r"dapi[a-f0-9]{32}"),
    _form("telegram_token", ":AA", rf"\d{{8,10}}:AA{WORD}{{33}}"),
    _form("mailgun_key", "key-", r"key-[0-9a-f]{32}(?![0-9a-zA-Z])"),
    _form("vault_token", "hvs. hvb.", rf"hv[sb]\.{WORD}{{24,512}}+"),
    _form("docker_token", "dckr_pat_", rf"dckr_pat_{WORD}{{20,512}}+"),
    _form("atlassian_token", "ATATT3", r"ATATT3[\w=-]{40,512}+"),
    _form(
        "grafana_token",
        "glsa_ glc_ eyJrIjoi",
        r"(?:glsa_\w{30,512}+|glc_[\w+/=]{32,512}+|eyJrIjoi[\w=-]{40,512}+)",
    ),
    _form(
        "vendor_token",
        "NRAK- PMAK- sntrys_ sntryu_ lin_api_ r8_ gsk_ xai- pplx- sbp_ nfp_ ost_ figd_ rnd_ fo1_ dp.pt. "
        "AGE-SECRET-",
        r"(?:NRAK-|PMAK-|sntry[su]_|lin_api_|r8_|gsk_|xai-|pplx-|sbp_|nfp_|ost_|figd_|rnd_|fo1_|dp\.pt\.|"
        rf"AGE-SECRET-KEY-1){WORD}{{24,512}}+",
    ),
    _form(
        "azure_key",
        "AccountKey= SharedAccessKey= sig=",
        r"(?<=(?:tKey|sKey)=)[A-Za-z0-9+/]{40,512}+={0,2}|(?<=[?&]sig=)[\w%]{40,512}+",
    ),
)
DIGIT = re.compile("[0-9]")
"""Nearly every token has a digit, and hardly any name in a program that begins like a token does."""
FRAME = re.compile(
    r"-----BEGIN ((?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?)-----(?:(?!-----BEGIN).)*?(?:-----END \1-----|\Z)"
    r"|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----(?:(?!---- BEGIN).)*?(?:---- END SSH2 |\Z)",
    re.DOTALL,
)
PUTTY = re.compile(
    r"Private-Lines: \d+\s+(?P<secret>(?:[A-Za-z0-9+/=]+\s+)+)|Private-MAC: (?P<mac>[0-9a-f]{16,})"
)
DOTTED = re.compile(r"(?<![\w.\-])[\w\-]{3,}+(?:\.[\w\-]*+)++", re.ASCII)
ENCODED = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{20,}+={0,2}")
TEXT = re.compile(rb"[\x20-\x7e\t\r\n]*+\Z")
DEEPEST = 2
"""The number of times that base64 may be wrapped in base64."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a secret in the layout of a file or of a command: `secret` is a group of the pattern."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    real: Callable[[str], bool]


def _place(kind: str, anchors: str, pattern: str, real: Callable[[str], bool] = is_password) -> _Place:
    return _Place(kind, tuple(anchors.split("|")), re.compile(pattern), real)


def _is_in_password_place(value: str) -> bool:
    """Return True, in a place where only a password can stand, for all but variables and placeholders."""
    return is_password(value) or (len(value) >= 4 and value.isalnum() and is_password(value + "1!aZ"))


ARGUMENT = r"""["']?(?P<secret>[^\s"'`$<>|;&][^\s"'`<>|;&]{3,511})"""
PLACES = (
    _place(
        "netrc",
        "login ",
        r"\blogin\s{1,8}[^\s]{1,128}\s{1,8}(?:account\s{1,8}\S{1,128}\s{1,8})?password\s{1,8}(?P<secret>\S{4,512})",
        _is_in_password_place,
    ),
    _place(
        "pgpass",
        ":",
        r"(?m)^(?:[\w.*\-]{1,128}|\[[\da-f:]{2,40}\]):(?:\d{2,5}|\*):(?!\d+:)[\w.*\-]{1,64}:[\w.*@\-]{1,64}:(?P<secret>\S{4,512})$",
    ),
    _place(
        "login",
        "-u|--user|-U",
        rf"(?:(?<=\s)|(?<=['\"])|^)(?:-u|-U|--user|--proxy-user)[ =]?[\"']?[\w.@+\-\\]{{1,64}}[:%]{ARGUMENT}",
    ),
    _place(
        "flag",
        "mysql|mariadb|sshpass",
        rf"\b(?:mysql\w{{0,12}}|mariadb\S{{0,12}}|sshpass)\b[^\n|;]{{0,200}}?\s-p{ARGUMENT}",
        _is_in_password_place,
    ),
    _place("flag", "sshpass", rf"\bsshpass\s{{1,4}}-p\s{{0,4}}{ARGUMENT}", _is_in_password_place),
    _place(
        "flag",
        "docker|podman|helm|az |redis-cli|ldap|smbclient|7z|unzip|zip |mongo|kinit|keytool",
        rf"\b(?:docker|podman|helm|az|redis-cli|ldap\w{{1,8}}|7z|unzip|zip|mongo\w{{0,8}})\b[^\n|;]{{0,200}}?\s-(?:p|a|w|P)\s{{0,2}}{ARGUMENT}",
    ),
    _place("flag", "pass:", rf"-(?:pass|passin|passout)\s{{1,4}}pass:{ARGUMENT}", _is_in_password_place),
    _place(
        "flag",
        "htpasswd",
        rf"\bhtpasswd\s{{1,4}}-\w{{0,8}}b\w{{0,8}}\s{{1,4}}\S{{1,128}}\s{{1,4}}\S{{1,64}}\s{{1,4}}{ARGUMENT}",
        _is_in_password_place,
    ),
    _place("flag", "/pass", rf"(?i)\s/pass(?:word)?:{ARGUMENT}"),
    _place("url_token", "://", r"(?<=://)(?P<secret>[\w\-]{20,512})@(?=[\w.\[-])", is_token),
    _place(
        "url_password",
        "://",
        r"(?<=://)[^\s/:@'\"<>{}$]{0,80}:(?P<secret>(?!\d{1,5}[/?#])[^\s@'\"<>]{3,200})@(?=[\w.\[-])",
    ),
    _place(
        "query",
        "=",
        r"(?i)[?&](?:\w{0,20}(?:pass|passw(?:or)?d|pwd|secret|token|key|sig|signature))=(?P<secret>[^\s&\"'<>#;]{6,512})",
    ),
)
COOKIE = re.compile(
    r"""(?i)(?:\bcookie["']?\s{0,4}[:=,]\s{0,4}["']?|\s(?:-b|--cookie)[ =]["']?)(?P<all>[^\n"'<>]{8,8192})"""
)
PAIR = re.compile(r"[\w.\-]{1,80}=(?P<secret>[^;\s,]{12,4096})")


def by_form(text: str, depth: int = 0) -> Iterator[Match]:
    """Yield the matches that are secret by their form alone."""
    runs = RunEnds(text)
    for form in FORMS:
        if any(anchor in text for anchor in form.anchors):
            for match in form.pattern.finditer(text):
                if DIGIT.search(match[0]):
                    yield form.kind, match.start(), runs.end(r"[\w\-]", match.end())
    if "PRIVATE KEY" in text:
        yield from (("private_key", m.start(), m.end()) for m in FRAME.finditer(text))
    if "Private-" in text:
        for match in PUTTY.finditer(text):
            yield "private_key", *match.span("secret" if match["secret"] else "mac")
    if "eyJ" in text:
        yield from _dotted(text)
    if depth < DEEPEST:
        yield from _encoded(text, depth)


def by_place(text: str) -> Iterator[Match]:
    """Yield the matches that are secret by their place in a file or a command of a known layout."""
    for place in PLACES:
        if any(anchor in text for anchor in place.anchors):
            for match in place.pattern.finditer(text):
                if place.real(match["secret"]):
                    yield place.kind, *match.span("secret")
    if "ookie" in text or " -b" in text:
        for header in COOKIE.finditer(text):
            for pair in PAIR.finditer(text, *header.span("all")):
                if is_token(pair["secret"]):
                    yield "cookie", *pair.span("secret")


def _dotted(text: str) -> Iterator[Match]:
    """Yield signed and encrypted JSON (JWT, JWE): base64 of `{"`, then two or four parts, also empty ones."""
    for match in DOTTED.finditer(text):
        at = match[0].find("eyJ")
        while at > 0 and match[0][at - 1].isalnum():
            at = match[0].find("eyJ", at + 1)
        first, *others = match[0][max(at, 0) :].split(".", 6)
        if at >= 0 and len(first) >= 13 and len(others) >= 2 and max(map(len, others)) >= 16:
            yield "jwt", match.start() + at, match.end()


def _encoded(text: str, depth: int) -> Iterator[Match]:
    """Yield base64 of a text with a secret in it, or of `user:password`."""
    for match in ENCODED.finditer(text):
        if _decoded(match[0][:24]) is None:
            continue
        inner = _decoded(match[0])
        if inner is not None and (
            any(by_form(inner, depth + 1)) or any(by_place(inner)) or any(by_name(inner)) or _is_login(inner)
        ):
            yield "encoded", match.start(), match.end()


def _is_login(text: str) -> bool:
    user, colon, password = text.strip().partition(":")
    return bool(colon) and user.isidentifier() and not re.search(r"\s", password) and is_password(password)


def _decoded(encoded: str) -> str | None:
    """Return the text that base64 encodes, or None when it is not base64 of text."""
    plain = encoded.rstrip("=").translate(URLSAFE)
    plain = plain[: len(plain) // 4 * 4] if len(plain) % 4 == 1 else plain + "=" * (-len(plain) % 4)
    try:
        data = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data.decode("ascii") if TEXT.match(data) else None


URLSAFE = str.maketrans("-_", "+/")
