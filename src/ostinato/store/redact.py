"""Secrets in text: found by their form, by what they are called, or by looking like nothing but chance.

A *form* is what a vendor prints in front of a token, or the frame of a private key. A *name* is a word such
as `password` before an equals sign or a colon; its value counts unless it reads like a placeholder or like
code. *Chance* is a long quoted string whose characters are spread as only random ones are. A form is looked
for only where a literal part of it occurs, which costs one search of the text each and keeps clean text
cheap.

Redaction is not proof: a password that is a plain word, with no name beside it, looks like any other word.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
    _form("jwt", "eyJ", rf"eyJ{WORD}{{10,512}}+\.eyJ{WORD}{{10,512}}+\.{WORD}{{10,512}}+"),
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
    r"-----BEGIN ((?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?)-----(?:(?!-----BEGIN).)*?(?:-----END \1-----|\Z)",
    re.DOTALL,
)
URL = re.compile(
    r"(?<=://)[^\s/:@'\"<>{}$]{0,80}:(?P<secret>(?!\d{1,5}[/?#])[^\s@'\"<>{}$()]{3,200})@(?=[\w.\[-])"
)
BEARER = re.compile(r"(?i:\b(?:bearer|basic|token)\s+)(?P<secret>(?=[\w.~+/-]*\d)[\w.~+/-]{20,}=*)")
NAMES = tuple(map(re.compile, ("pass", "pwd", "secret", "token", "credential", "auth", "key")))
"""Parts of names, looked for one by one in lower case: several times faster than one pattern of them all."""
WHOSE = re.compile(
    r"(?:api|access|private|secret|signing|encryption|master|account|auth|service|client|shared|app|deploy|"
    r"session|license|admin|root|write|read|functions|instrumentation|storage)[_\-. ]?$"
)
"""What must stand before `key`, which by itself is a name for anything."""
VALUE = re.compile(
    r"""(?x)
    (?i:wor[dt]|wd|phrase|s)? [\w\-]{0,20}
    (?: [\\"'\]]{0,4} \s{0,4} (?:=>|:=|==|=|:) \s{0,4} | ["']\s{0,2},\s{0,2}
      | [ \t]{1,4}(?=["'][^"'\s]{8,200}["']) )
    (?: [rbfu]{0,2} (?P<quote>\\?["'`]) (?P<quoted>[^"'`\s\\]{6,256}) (?P=quote)
      | (?P<bare>[^\s"'`,;(){}\[\]<>$\\&|]{8,256}+) (?=[\s,;&|"'\\<]|$) )
    """
)
FLAG = re.compile(
    r"(?i)--?(?:pass(?:word|phrase)?|secret|token|api-?key|auth)[ =]"
    r"(?P<secret>[^\s'\"$<>{}()\[\],;|&-][^\s'\"$<>{}()\[\],;|&]{7,512})"
)
RANDOM = re.compile(r"""(?P<quote>\\?["'`])(?P<secret>[A-Za-z0-9+/_\-]{24,200}={0,2})(?P=quote)""")
PLACEHOLDER = re.compile(
    r"(?i)example|placeholder|change_?me|your|dummy|sample|redacted|xxxx|\*\*\*|\.\.\.|1234567|abcdef|^test|foobar|"
    r"none|null|true|false|undefined|^<|^\$|^%[(s]|%[ds].*%[ds]|\{|^env|getenv|environ|fake|mock|todo|insert|"
    r"secret_?key|password|passwd"
)
CODE = re.compile(
    r"[(){}\[\]]|^[a-z_]+(?:[._/-][a-z_]+)+$|^[A-Z_]+$|^[a-z]+$|^[A-Z]?[a-z]+(?:[A-Z][a-z]+)+$|^[\w.]+\.[a-z]{2,}\w*$",
    re.ASCII,
)
ENV = re.compile(r"(?i:(?:export|set|env|arg|-|\+|\$env:|#)?\s*)[\w.\-]*")
SNAKE = re.compile(r"(?:\w+\.)*[a-z]+(?:_[a-z0-9]+)+|[\w.]+\.[A-Za-z_]\w+")
HASH_NAMES = re.compile(
    r"(?i)(?:sha\d*|md5|hash|digest|checksum|integrity|commit|revision|fingerprint|etag|uuid|guid)\W{0,6}$"
)
WORDS = re.compile(r"[A-Z]?[a-z]{3,}")
LEAST_WORDS = 0.4
SPREAD = 4.3
"""Bits a character of a quoted string of chance; English lies below 4, code identifiers below 4.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Where one is in a text.

    >>> [text[s.start : s.end] for text in ["x = 'AKIAIOSFODNN7EXAMPLQ'"] for s in find(text)]
    ['AKIAIOSFODNN7EXAMPLQ']
    """

    kind: str
    start: int
    end: int


def find(text: str) -> list[Secret]:
    """Secrets in `text`, in order, none inside another."""
    found = sorted(_candidates(text), key=lambda secret: (secret.start, -secret.end))
    kept: list[Secret] = []
    for secret in found:
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end:
            kept[-1] = Secret(kind=kept[-1].kind, start=kept[-1].start, end=secret.end)
    return kept


def redact(text: str) -> str:
    """`text` with each secret replaced by `[redacted KIND]`; the same text if there is none."""
    secrets = find(text)
    if not secrets:
        return text
    pieces, at = [], 0
    for secret in secrets:
        pieces += [text[at : secret.start], f"[redacted {secret.kind}]"]
        at = secret.end
    return "".join([*pieces, text[at:]])


def redact_json(value: Any) -> Any:
    """A JSON value with every text in it redacted; a name before a text counts, as in `{"password": "…"}`."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): _redact_named(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(each) for each in value]
    return value


def _redact_named(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return redact_json(value)
    plain = redact(value)
    if plain == value and value and "\n" not in value and find(f'{name} = "{value}"'):
        return "[redacted named]"
    return plain


def _candidates(text: str) -> Iterator[Secret]:
    for form in FORMS:
        if any(anchor in text for anchor in form.anchors):
            matches = (m for m in form.pattern.finditer(text) if DIGIT.search(m[0]))
            yield from (Secret(kind=form.kind, start=m.start(), end=m.end()) for m in matches)
    if "-----BEGIN " in text:
        yield from (Secret(kind="private_key", start=m.start(), end=m.end()) for m in FRAME.finditer(text))
    if "://" in text and "@" in text:
        yield from _groups("url_password", URL, text, _is_password)
    yield from _by_name(text)
    yield from _by_chance(text)


def _groups(kind: str, pattern: re.Pattern[str], text: str, real: Any) -> Iterator[Secret]:
    for match in pattern.finditer(text):
        if real(match["secret"]):
            yield Secret(kind=kind, start=match.start("secret"), end=match.end("secret"))


def _by_name(text: str) -> Iterator[Secret]:
    lowered = _lower(text)
    if "bearer" in lowered or "basic" in lowered or "token" in lowered:
        yield from _groups("authorization", BEARER, text, _is_token)
    if "-p" in lowered or "-t" in lowered or "-s" in lowered or "-a" in lowered:
        yield from _groups("flag", FLAG, text, _is_password)
    for name in NAMES:
        for at in name.finditer(lowered):
            if name is NAMES[-1] and not WHOSE.search(lowered, max(0, at.start() - 16), at.start()):
                continue
            if match := VALUE.match(text, at.end()):
                yield from _named(text, at.start(), match)


def _named(text: str, start: int, match: re.Match[str]) -> Iterator[Secret]:
    group = "quoted" if match["quoted"] is not None else "bare"
    value = match[group]
    if _is_password(value) if group == "quoted" else _is_token(value) or _is_env(text, start, value):
        yield Secret(kind="named", start=match.start(group), end=match.end(group))


def _lower(text: str) -> str:
    """`text` in lower case, character for character: a few letters have a longer one, those stay."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if c.isascii() else c for c in text)


def _is_env(text: str, start: int, value: str) -> bool:
    """A bare value counts as a password where the name begins its line, as in `DB_PASSWORD=…` or YAML."""
    head = text[text.rfind("\n", 0, start) + 1 : start].strip()
    return bool(ENV.fullmatch(head)) and _is_password(value) and not SNAKE.fullmatch(value)


def _by_chance(text: str) -> Iterator[Secret]:
    for match in RANDOM.finditer(text):
        value = match["secret"]
        named = HASH_NAMES.search(text, max(0, match.start() - 24), match.start())
        if not named and _is_chance(value):
            yield Secret(kind="chance", start=match.start("secret"), end=match.end("secret"))


def _is_password(value: str) -> bool:
    """A value that somebody chose or drew, not a word of a program or of a manual."""
    if PLACEHOLDER.search(value) or CODE.search(value) or len(set(value)) < 5:
        return False
    classes = sum(bool(re.search(each, value)) for each in ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]"))
    return classes >= 2 and bool(re.search("[A-Za-z]", value) and re.search(r"[0-9]|[^\w.:/-]", value))


def _is_token(value: str) -> bool:
    """Long, mixed and without a pattern."""
    return (
        len(value) >= 16 and _is_password(value) and bool(re.search("[0-9]", value)) and not _is_words(value)
    )


def _is_chance(value: str) -> bool:
    if not (re.search("[a-z]", value) and re.search("[A-Z]", value) and len(re.findall("[0-9]", value)) >= 2):
        return False
    least = min(SPREAD, math.log2(len(value)) * 0.86)
    return not PLACEHOLDER.search(value) and not _is_words(value) and spread(value) >= least


def _is_words(value: str) -> bool:
    """Whether it is mostly made of words, as names in programs are: chance leaves few letters together."""
    return sum(map(len, WORDS.findall(value))) >= len(value) * LEAST_WORDS


def spread(text: str) -> float:
    """Shannon entropy of the characters of `text`, bits each.

    >>> spread("aabb")
    1.0
    """
    n = len(text)
    return -sum(count / n * math.log2(count / n) for count in Counter(text).values())
