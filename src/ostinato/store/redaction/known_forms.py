"""Secrets that their look gives away: a vendor's prefix of a token, the frame of a key, a file's layout.

A form is looked for only where a literal part of it occurs, which costs one search of the text each and keeps
clean text cheap. Every pattern is linear: what repeats is bounded or begins only where its run begins, and
what may be longer than its bound is followed to the end of its run once (`runs.py`).
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ostinato.store.redaction.likelihood import is_password, is_token
from ostinato.store.redaction.run_ends import Runs

Found = tuple[str, int, int]
"""Kind, start and end of a secret."""

WORD = r"[A-Za-z0-9_\-]"
LETTERS = r"[A-Za-z0-9]"


@dataclass(frozen=True, slots=True)
class _Form:
    """A token whose look gives it away: literal parts of which one must occur, and the whole."""

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
"""Nearly every token has one, and hardly any name in a program that begins as one does."""
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
"""How often base64 may be wrapped in base64."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a secret stands by the layout of a file or of a command: `secret` is a group of the pattern."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    real: Callable[[str], bool]


def _place(kind: str, anchors: str, pattern: str, real: Callable[[str], bool] = is_password) -> _Place:
    return _Place(kind, tuple(anchors.split("|")), re.compile(pattern), real)


def _is_said(value: str) -> bool:
    """A value that stands where only a password can stand: anything but a variable or a placeholder."""
    return is_password(value) or (len(value) >= 4 and value.isalnum() and is_password(value + "1!aZ"))


ARGUMENT = r"""["']?(?P<secret>[^\s"'`$<>|;&][^\s"'`<>|;&]{3,511})"""
PLACES = (
    _place(
        "netrc",
        "login ",
        r"\blogin\s{1,8}[^\s]{1,128}\s{1,8}(?:account\s{1,8}\S{1,128}\s{1,8})?password\s{1,8}(?P<secret>\S{4,512})",
        _is_said,
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
        _is_said,
    ),
    _place("flag", "sshpass", rf"\bsshpass\s{{1,4}}-p\s{{0,4}}{ARGUMENT}", _is_said),
    _place(
        "flag",
        "docker|podman|helm|az |redis-cli|ldap|smbclient|7z|unzip|zip |mongo|kinit|keytool",
        rf"\b(?:docker|podman|helm|az|redis-cli|ldap\w{{1,8}}|7z|unzip|zip|mongo\w{{0,8}})\b[^\n|;]{{0,200}}?\s-(?:p|a|w|P)\s{{0,2}}{ARGUMENT}",
    ),
    _place("flag", "pass:", rf"-(?:pass|passin|passout)\s{{1,4}}pass:{ARGUMENT}", _is_said),
    _place(
        "flag",
        "htpasswd",
        rf"\bhtpasswd\s{{1,4}}-\w{{0,8}}b\w{{0,8}}\s{{1,4}}\S{{1,128}}\s{{1,4}}\S{{1,64}}\s{{1,4}}{ARGUMENT}",
        _is_said,
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


def by_form(text: str, depth: int = 0) -> Iterator[Found]:
    """What is secret by its form alone."""
    runs = Runs(text)
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


def by_place(text: str) -> Iterator[Found]:
    """What is secret by where it stands in a file or a command of a known layout."""
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


def _dotted(text: str) -> Iterator[Found]:
    """Signed and encrypted JSON (JWT, JWE): base64 of `{"`, then two or four parts, some perhaps empty."""
    for match in DOTTED.finditer(text):
        at = match[0].find("eyJ")
        while at > 0 and match[0][at - 1].isalnum():
            at = match[0].find("eyJ", at + 1)
        first, *others = match[0][max(at, 0) :].split(".", 6)
        if at >= 0 and len(first) >= 13 and len(others) >= 2 and max(map(len, others)) >= 16:
            yield "jwt", match.start() + at, match.end()


def _encoded(text: str, depth: int) -> Iterator[Found]:
    """Base64 of text in which there is a secret, or of `user:password`."""
    for match in ENCODED.finditer(text):
        told = match[0]
        if _decoded(told[:24]) is None:
            continue
        inner = _decoded(told)
        if inner is not None and (any(_inside(inner, depth + 1)) or _is_login(inner)):
            yield "encoded", match.start(), match.end()


def _inside(text: str, depth: int) -> Iterator[Found]:
    from ostinato.store.redaction.by_name import by_name

    yield from by_form(text, depth)
    yield from by_place(text)
    yield from by_name(text)


def _is_login(text: str) -> bool:
    user, colon, password = text.strip().partition(":")
    return bool(colon) and user.isidentifier() and not re.search(r"\s", password) and is_password(password)


def _decoded(told: str) -> str | None:
    """The text that `told` encodes; None when it encodes none."""
    plain = told.rstrip("=").translate(URLSAFE)
    plain = plain[: len(plain) // 4 * 4] if len(plain) % 4 == 1 else plain + "=" * (-len(plain) % 4)
    try:
        data = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data.decode("ascii") if TEXT.match(data) else None


URLSAFE = str.maketrans("-_", "+/")
