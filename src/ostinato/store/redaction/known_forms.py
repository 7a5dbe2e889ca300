"""Secrets of known form: tokens with a vendor's prefix, framed keys, and places in files of a known layout.

A form is searched only where one of its literal parts occurs: that costs one search of the text per part and
keeps clean text cheap. Every pattern is linear: repetitions are bounded or begin only where their run begins,
and a match that may be longer than its bound is followed to the end of its run once (`run_ends.py`).
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ostinato.store.redaction.by_name import Match, by_name, is_secret_name
from ostinato.store.redaction.likelihood import (
    READ,
    is_documented,
    is_drawn,
    is_password,
    is_stand_in,
    is_token,
)
from ostinato.store.redaction.run_ends import RunEnds

WORD = r"[A-Za-z0-9_\-]"
LETTERS = r"[A-Za-z0-9]"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A form, or the place of a secret in a file or a command: `secret` is a group of the pattern.

    It is searched where one of its literal parts occurs, and holds where `real` is true for the secret.
    """

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    real: Callable[[str], object]


def _form(kind: str, anchors: str, pattern: str) -> _Rule:
    """Return the rule for a token; nearly all have a digit, unlike names that begin like one."""
    whole = re.compile(rf"(?<!{LETTERS})(?P<secret>{pattern})")
    return _Rule(kind, tuple(anchors.split()), whole, _is_no_example)


def _is_no_example(value: str) -> bool:
    return bool(re.search("[0-9]", value)) and not is_documented(value)


def _place(kind: str, anchors: str, pattern: str, real: Callable[[str], object] = is_password) -> _Rule:
    return _Rule(kind, tuple(anchors.split("|")), re.compile(pattern), real)


def _found(rules: Iterable[_Rule], text: str) -> Iterator[Match]:
    for rule in rules:
        if any(anchor in text for anchor in rule.anchors):
            for match in rule.pattern.finditer(text):
                if rule.real(match["secret"]):
                    yield rule.kind, *match.span("secret")


UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HASH = (
    r"\$(?:2[abxy]\$\d\d\$[./A-Za-z\d]{53}|(?:[156y]|7|apr1|md5|sha1|gy|scrypt|argon2\w{1,2}|"
    r"pbkdf2[\w-]{0,16}|bcrypt-sha256)\$[\w./+,=$-]{20,512}+=*|[PHS]\$[./A-Za-z\d]{31,52})"
    r"|(?:pbkdf2_\w{3,10}|scrypt|argon2|bcrypt_sha256|scrypt:\d+:\d+:\d+)\$[\w./+,=$-]{30,512}+=*"
    r"|\{S?S(?:HA|MD5)\d{0,3}\}[\w+/]{20,200}={0,2}"
    r"|SCRAM-SHA-\d+\$\d+:[\w+/=]{16,64}\$[\w+/=]{20,100}:[\w+/=]{20,100}"
    r"|[0-9a-f]{32}:[0-9a-f]{32}(?=:::)"
)
"""Hashes of passwords, as `crypt`, LDAP, databases and web frameworks write them."""
FORMS = (
    _form("aws_key", "AKIA ASIA AROA AIDA", r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _form("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"gh[pousr]_{LETTERS}{{30,255}}"),
    _form("github_token", "github_pat_", r"github_pat_\w{40,512}+"),
    _form("gitlab_token", "glpat- glrt- gldt- glcbt-", rf"gl(?:pat|rt|dt|cbt)-{WORD}{{20,512}}+"),
    _form("slack_token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxc- xoxd- xoxe xapp-",
        r"(?:xox[abcdeprs]|xapp)(?:\.xox[bp])?-[\w%-]{10,512}+"),
    _form("slack_webhook", "hooks.slack.com",
        r"(?<=hooks\.slack\.com/)(?:services|workflows)/[\w/+-]{20,512}+"),
    _form("api_key", "sk-",
        rf"sk-(?:ant-|proj-|svcacct-|admin-|or-|lf-)?(?={WORD}{{0,64}}{LETTERS}{{12}}){WORD}{{20,512}}+"),
    _form("stripe_key", "_live_ _test_", rf"(?:sk|rk|whsec)_(?:live|test)_{LETTERS}{{16,512}}+"),
    _form("google_key", "AIza", rf"AIza{WORD}{{35}}"),
    _form("sendgrid_key", "SG.", rf"SG\.{WORD}{{16,32}}\.{WORD}{{16,64}}"),
    _form("twilio_key", "SK AC", r"(?:SK|AC)[0-9a-f]{32}(?![0-9a-zA-Z])"),
    _form("telegram_token", ":AA", rf"(?:bot)?\d{{8,10}}:AA{WORD}{{33}}"),
    _form("mailgun_key", "key-", r"key-[0-9a-f]{32}(?![0-9a-zA-Z])"),
    _form("google_token", "1//0", r"1//0[\w-]{40,512}+"),
    _form("vendor_token", ".atlasv1.", r"[A-Za-z\d]{14}\.atlasv1\.[\w-]{60,80}"),
    _form("vendor_token", "-us1 -us2 -us3 -us4 -us5 -us6 -us7 -us8 -us9", r"[0-9a-f]{32}-us\d{1,2}(?!\w)"),
    _form("azure_key", "7Q~ 8Q~", r"[A-Za-z\d]{3}\dQ~[\w.~-]{31,40}"),
    _form("vendor_token", "$production$ $sandbox$", r"access_token\$\w{4,12}\$\w{16}\$[0-9a-f]{32}"),
    _form("vendor_token", "pat", r"pat[A-Za-z\d]{14}\.[0-9a-f]{64}"),
    _form("vendor_token", "00D msh :APA91b -hint: oauth: AAAAAAAAAAAAAAAAAAAA",
        r"00D[A-Za-z\d]{12}![\w.]{60,200}|[a-z\d]{10}msh[a-z\d]{20,40}jsn[a-z\d]{10,20}|oauth:[a-z\d]{30}(?!\w)"
        r"|AAAA[\w-]{7}:APA91b[\w-]{100,200}|ver:\d-hint:\d+-[\w+/=]{40,512}+|A{20}[\w%]{20,80}%3D[\w%]{30,100}"),
    _form("vendor_token", "ABSK fm2_", r"(?:ABSK|fm2_)[A-Za-z\d+/]{80,512}+=*"),
    _form("vendor_token", "api- sdk- ApiKey- sk-", rf"(?:api|sdk|mob|ApiKey|sk-lf|sk-ak)-{UUID.pattern}"),
    _form("password_hash", "$ {S SCRAM- :::", HASH),
    _form("discord_token", ".", rf"[MNO][A-Za-z\d]{{22,28}}\.{WORD}{{6}}\.{WORD}{{27,40}}(?![\w-])"),
    _form("azure_key", "AccountKey= SharedAccessKey=", r"(?<=(?:tKey|sKey)=)[A-Za-z0-9+/]{40,512}+={0,2}"),
    _form("azure_key", "sig=", r"(?<=\bsig=)(?:[\w+/]|%2[BbFf]){40,512}+(?:%3[Dd]|=){0,2}"),
)  # fmt: skip
PREFIXES = """
A3- access-production- AGE-SECRET-KEY-1 aio_ AKCp API- AQVN ATATT3 ATBB ATCTT3 bb_live_ bedrock-api-key-
bkua_ CCIPAT_ CFPAT- cfut_ CLOJARS_ csk- dapi dckr_oat_ dckr_pat_ doo_v1_ dop_v1_ dor_v1_ dp.ct. dp.pt.
dp.sa. dp.st. dt0c01. dt0s01. duffel_live_ e2b_ eyJrIjoi EZAK fc- figd_ fio-u- FLWSECK- fo1_ fw_ glagent-
glc_ glft- glimt- gloas- glptt- glsa_ glsoat- GOCSPX- GOOG1E GR1348941 gsk_ hcaik_ hf_ HRKU- hvb. hvr. hvs.
jina_ lin_api_ lin_oauth_ live_ lsv2_pt_ lsv2_sk_ LTAI mdb_sa_sk_ napi_ nfp_ npg_ npm_ NRAK- NRII- ntn_
nvapi- ops_ ost_ packagist_ack_ pat-eu1- pat-na1- pcsk_ phx_ PMAK- pnb_ pnu_ pplx- pscale_oauth_ pscale_pw_
pscale_tkn_ pul- pypi-AgE r8_ rdme_ re_ rnd_ rpa_ rubygems_ sb_secret_ sbp_ sgp_ shippo_live_ shpat_ shpca_
shppa_ shpss_ sk_ sntrys_ sntryu_ sq0atp- sq0csp- sqa_ sqp_ squ_ tfp_ tgp_v1_ tskey- tvly- vcp_ wandb_v1_
whsec_ xai- xkeysib- xsmtpsib- ya29.
"""
"""How the tokens of services begin; what follows is long, of one piece, and drawn."""
BODY = re.compile(r"[\w.+=-]{12,512}+")
INSIDE = re.compile(r"[A-Za-z0-9]\Z|\w[-._]\Z")
FRAME = re.compile(
    r"-----BEGIN[ +]((?:[A-Z0-9]+[ +]){0,4}PRIVATE[ +]KEY(?:[ +]BLOCK)?)-----"
    r"(?:(?!-----BEGIN).)*?(?:-----END[ +]\1-----|\Z)"
    r"|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----(?:(?!---- BEGIN).)*?(?:---- END SSH2 |\Z)",
    re.DOTALL,
)
KEYS = ("MII", "b3BlbnNzaC1rZXktdjE", "MHcCAQEE", "MIG", "MC4CAQAw")
HEADLESS = re.compile(
    r"(?<![A-Za-z0-9+/])(?:MII[A-Za-z0-9+/]{3}IBA[AD]|b3BlbnNzaC1rZXktdjE|MHcCAQEE|"
    r"MIG[HTk][A-Za-z0-9+/]{2}AgE|MC4CAQAw)[A-Za-z0-9+/]{24,}+"
    r"(?:\s{1,20}[A-Za-z0-9+/]{40,})*+(?:\s{1,20}[A-Za-z0-9+/]{4,40}(?![\w+/]))?=*"
)
"""What RSA, OpenSSH, EC and Ed25519 keys begin with after their first line."""
PUTTY = re.compile(
    r"Private-Lines: \d+(?P<secret>[A-Za-z0-9+/=\s\\\"'>#*|-]{16,16384}?)"
    r"(?=Private-MAC|Private-Hash|[^\x00-\x7f]|\Z)"
    r"|Private-(?:MAC|Hash): (?P<mac>[0-9a-f]{16,})"
)
DOTTED = re.compile(r"(?<![\w.\-])[\w\-]{3,}+(?:\.[\w\-]*+)++", re.ASCII)
ENCODED = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{20,}+={0,2}")
HEX = re.compile("[0-9a-fA-F]{16,}+")
TEXT = re.compile(rb"[\x20-\x7e\t\r\n]*+\Z")
DEEPEST = 2
"""The number of times that base64 may be wrapped in base64."""


def _is_in_password_place(value: str) -> bool:
    """Return True, in a place where only a password can stand, for all but variables and placeholders."""
    is_plain = len(value) >= 4 and re.fullmatch(r"[A-Za-z0-9][\w.-]*", value[:READ])
    return is_password(value) or bool(is_plain and is_password(value + "1!aZ"))


ARGUMENT = r"""["']?(?P<secret>[^\s"'`$<>|;&][^\s"'`<>|;&]{3,511})"""
PLACES = (
    _place("netrc", "login ",
        r"\blogin\s{1,8}[^\s]{1,128}\s{1,8}(?:account\s{1,8}\S{1,128}\s{1,8})?"
        r"password\s{1,8}(?P<secret>\S{4,512})", _is_in_password_place),
    _place("pgpass", ":",
        r"(?m)^(?:[\w.*\-]{1,128}|\[[\da-f:]{2,40}\]):(?:\d{2,5}|\*):(?!\d+:)"
        r"[\w.*\-]{1,64}:[\w.*@\-]{1,64}:(?P<secret>\S{4,512})$"),
    _place("login", "-u|--user|-U",
        rf"(?:(?<=\s)|(?<=['\"])|^)(?:-u|-U|--user|--proxy-user)[ =]?[\"']?[\w.@+\\-]{{1,64}}[:%]{ARGUMENT}"),
    _place("flag", "mysql|mariadb|sshpass",
        rf"\b(?:mysql\w{{0,12}}|mariadb\S{{0,12}}|sshpass)\b[^\n|;]{{0,200}}?\s-p{ARGUMENT}",
        _is_in_password_place),
    _place("flag", "sshpass", rf"\bsshpass\s{{1,4}}-p\s{{0,4}}{ARGUMENT}", _is_in_password_place),
    _place("flag", "docker|podman|helm|az |redis-cli|ldap|smbclient|7z|unzip|zip |mongo|kinit|keytool",
        rf"\b(?:docker|podman|helm|az|redis-cli|ldap\w{{1,8}}|7z|unzip|zip|mongo\w{{0,8}})\b"
        rf"[^\n|;]{{0,200}}?\s-(?:p|a|w|P)\s{{0,2}}{ARGUMENT}"),
    _place("flag", "pass:",
        rf"-(?:pass|passin|passout)[ =]{{1,4}}[\"']?pass:{ARGUMENT}", _is_in_password_place),
    _place("flag", "openssl",
        rf"\bopenssl\b[^\n|;]{{0,200}}?\s-[kK]\s{{1,4}}{ARGUMENT}", _is_in_password_place),
    _place("flag", "htpasswd",
        rf"\bhtpasswd\s{{1,4}}-\w{{0,8}}b\w{{0,8}}\s{{1,4}}\S{{1,128}}\s{{1,4}}\S{{1,64}}\s{{1,4}}{ARGUMENT}",
        _is_in_password_place),
    _place("flag", "/pass", rf"(?i)\s/pass(?:word)?:{ARGUMENT}"),
    _place("url_token", "://",
        r"(?<=://)(?P<secret>[\w\-]{20,512})(?:@(?=[\w.\[-])|:(?=[^\s/@]{8,200}@))", is_token),
    _place("url_password", "://",
        r"(?<=://)[^\s/:@'\"<>{}$]{0,80}:(?P<secret>(?!\d{1,5}[/?#])[^\s@'\"<>]{3,200})@(?=[\w.\[-])"),
    _place("query", "=",
        r"(?i)(?:[?&#]|&amp;)(?:[\w-]{0,20}(?:pass|passw(?:or)?d|pwd|secret|token|key|sig|signature))="
        r"(?P<secret>[^\s&\"'<>#;]{6,512}+)"),
    _place("query", "code=", r"[?&]code=(?P<secret>[^\s&\"'<>#;]{20,512}+)", is_token),
    _place("webhook", "/webhooks/", r"/webhooks/\d{5,25}/(?P<secret>[\w-]{20,512}+)"),
    _place("webhook", "hook",
        r"(?i)://[^\s\"'<>]{0,120}?hooks?\w{0,4}/(?P<secret>[^\s\"'<>?#]{16,512})",
        lambda path: any(is_token(part) or is_drawn(part) or UUID.search(part) for part in path.split("/"))),
    _place("connection", "assword=|wd=|assword =|PWD=|PASSWORD=",
        r"(?i)(?:server|data source|user id|uid|driver|addr|host)=[^\n]{0,300}?;\s?(?:password|pwd)\s?=\s?"
        r"(?P<secret>'[^'\n]{3,200}'|\{[^}\n]{3,200}\}|[^;\"'\n]{3,200})",
        lambda value: not (value.startswith(("$", "<", "{{", "%")) or is_stand_in(value))),
    _place("connection", "thin:|sqlplus",
        r"(?:thin:|sqlplus\s{1,4})[\w$]{1,40}/(?P<secret>[^\s/@'\"]{4,200})@", _is_in_password_place),
    _place("directive", "bindpw|rootpw|requirepass|masterauth",
        r"(?m)^\s{0,8}(?:bindpw|rootpw|requirepass|masterauth)\s{1,8}(?P<secret>\S{4,200})",
        _is_in_password_place),
    _place("password_hash", ":", r"(?m)^[\w.@-]{1,64}:[^:\n]{1,64}:(?P<secret>[0-9a-f]{32})$"),
)  # fmt: skip
ASSIGNMENTS = re.compile(
    r"""(?x)(?: (?<!\w)--(?:from-literal|set(?:-string|-literal|-env-vars|-secrets)?|update-env-vars|env
        |build-arg|var|extra-vars|parameter-overrides|parameters)(?=[ =])
      | (?<=\s)-(?:e|var)(?=[ ])
      | \b(?:config:set|secrets?\ set|kv\ put|kv\ patch|env\ set|variables?\ set)(?=[ ]) )
      (?P<all>[^\n|;<>]{8,2048})"""
)
ASSIGNMENT = re.compile(
    r"(?<![\w./@-])(?P<name>\w[\w.\[\]/@-]{1,80}?)=(?:(?P<quote>\\?[\"'])(?P<quoted>[^\"'\s\\$<>]{4,256})(?P=quote)"
    r"|(?P<bare>[^\s\"'`,$<>(){}\\]{4,256}))(?=[\s\"'`,\\]|$)"
)
"""The arguments `name=value` of a command that sets values: of kubectl, Helm, Terraform, Vault and others."""
OF_A_PLACE = re.compile(r"(?i)(?:name|file|path|ref|arn|id|ttl|type|enabled|class|existing\w*)$")
COOKIE = re.compile(
    r"""(?i)(?:\bcookie["']?\s{0,4}[:=,]\s{0,4}["']?|\s(?:-b|--cookie)[ =]["']?)(?P<all>[^\n"'<>]{8,8192})"""
)
SECRET_OF_PAIR = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])")
NEAR = 300  # characters between the two keys of a pair
PAIR = re.compile(r"[\w.\-]{1,80}=(?P<secret>[^;\s,]{12,4096})")


def by_form(text: str, depth: int = 0) -> Iterator[Match]:
    """Yield the matches that are secret by their form alone."""
    runs = RunEnds(text)
    for kind, start, end in _found(FORMS, text):
        yield kind, start, runs.end(r"[\w\-]", end)
    yield from _prefixed(text, runs)
    if "PRIVATE" in text:
        yield from (("private_key", m.start(), m.end()) for m in FRAME.finditer(text))
    if any(start in text for start in KEYS):
        yield from (("private_key", m.start(), m.end()) for m in HEADLESS.finditer(text))
    if "Private-" in text:
        for match in PUTTY.finditer(text):
            yield "private_key", *match.span("secret" if match["secret"] else "mac")
    if "eyJ" in text:
        yield from _dotted(text)
    if depth < DEEPEST:
        yield from _encoded(text, depth)


def _prefixed(text: str, runs: RunEnds) -> Iterator[Match]:
    """Yield the tokens of services, each searched by how it begins.

    Only the beginning of a name counts: `fc-` stands inside the name of many a kernel.
    """
    for prefix in PREFIXES.split():
        at = text.find(prefix)
        while at >= 0:
            after = at + len(prefix)
            body = None if INSIDE.search(text, max(at - 2, 0), at) else BODY.match(text, after)
            if body and is_drawn(body[0]) and not is_documented(body[0]):
                yield "vendor_token", at, runs.end(r"[\w\-]", body.end())
            at = text.find(prefix, body.end() if body else after)


def by_place(text: str) -> Iterator[Match]:
    """Yield the matches that are secret by their place in a file or a command of a known layout."""
    yield from _found(PLACES, text)
    if "AKIA" in text or "ASIA" in text:
        yield from _pairs(text)
    for command in ASSIGNMENTS.finditer(text):
        for pair in ASSIGNMENT.finditer(text, *command.span("all")):
            group = "quoted" if pair["quoted"] is not None else "bare"
            last = re.split(r"[./]", pair["name"])[-1]
            if is_secret_name(last) and not OF_A_PLACE.search(last) and is_password(pair[group]):
                yield "flag", *pair.span(group)
    if "ookie" in text or " -b" in text:
        for header in COOKIE.finditer(text):
            for pair in PAIR.finditer(text, *header.span("all")):
                if is_token(pair["secret"]):
                    yield "cookie", *pair.span("secret")


def _pairs(text: str) -> Iterator[Match]:
    """Yield the secret keys of Amazon near a key's id, which have no form but their length."""
    for match in SECRET_OF_PAIR.finditer(text):
        if is_documented(match[0]):
            continue
        near = text[max(0, match.start() - NEAR) : match.end() + NEAR]
        if ("AKIA" in near or "ASIA" in near) and is_token(match[0]):
            yield "aws_secret", *match.span()


def _dotted(text: str) -> Iterator[Match]:
    """Yield signed and encrypted JSON (JWT, JWE): base64 of `{"`, then two or four parts, also empty ones."""
    for match in DOTTED.finditer(text):
        at = match[0].find("eyJ")
        while at > 0 and match[0][at - 1].isalnum():
            at = match[0].find("eyJ", at + 1)
        first, *others = match[0][max(at, 0) :].split(".", 6)
        is_public = match[0].startswith("pk.")  # as Mapbox gives to browsers
        if (
            at >= 0
            and len(first) >= 13
            and len(others) >= 2
            and max(map(len, others)) >= 16
            and not is_public
        ):
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
    """Return the text that base64 or hexadecimal digits encode, or None when it is none."""
    if len(encoded) % 2 == 0 and HEX.fullmatch(encoded):
        data = bytes.fromhex(encoded)
        return data.decode("ascii") if TEXT.match(data) else None
    plain = encoded.rstrip("=").translate(URLSAFE)
    plain = plain[: len(plain) // 4 * 4] if len(plain) % 4 == 1 else plain + "=" * (-len(plain) % 4)
    try:
        data = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data.decode("ascii") if TEXT.match(data) else None


URLSAFE = str.maketrans("-_", "+/")
