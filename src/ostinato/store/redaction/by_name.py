"""The search for secrets by name: the value after a word such as `password`, in many languages' syntax."""

import re
from collections import Counter
from collections.abc import Iterator

from ostinato.store.redaction.likelihood import is_chance, is_mere_letters, is_password, is_token
from ostinato.store.redaction.run_ends import RunEnds

Match = tuple[str, int, int]
"""Kind, start and end of a secret."""
NAMES = tuple(
    map(re.compile, ("pass", "pw(?![a-ce-z])", "psk", "secret", "token", "credential", "auth", "key"))
)
"""Parts of names. They are searched one by one in lower case, several times faster than as one pattern."""
OWNER_OF_KEY = re.compile(
    r"(?:api|access|private|secret|signing|encryption|master|account|auth|service|client|shared|app|deploy|"
    r"session|license|admin|root|write|read|functions|instrumentation|storage)[_\-. ]?$"
)
"""Words before `key` that make it a secret's name; `key` alone may mean anything."""
BARE = r"""[^\s"'`,;(){}\[\]<>$\\&|]"""
WIDE = r"""[^\s"'`<>]"""
"""Characters of a value that has its line to itself, as in `.env` and YAML."""
QUOTED = r"""[^"'`\s\\]"""
VALUE = re.compile(
    rf"""(?x)
    (?P<tail> (?i:wor[dt]|wd|phrase|s)? [\w\-]{{0,24}} )
    (?: (?:\.\w{{1,16}})? [\\"'\]]{{0,4}}
        (?: \[\d{{0,4}}\] | \s{{0,4}} : \s{{0,2}} [\w&'.?]{{1,24}} | [ ] [\w.*&]{{1,16}} )?
        \s{{0,4}} (?P<sign> => | := | [|?]{{2}}= | == | != | <- | = | : ) \s{{0,4}}
        (?: [|>][-+]?[ ]*\n\s{{1,20}} | [\w.\[\]"'()]{{1,40}} [ ] (?:\?\?|\|\|) [ ] )?
      | ["']\s{{0,2}},\s{{0,2}}
      | ["']?\s{{0,20}},?\s{{0,20}}["']?value["']?\s{{0,4}}[:=]\s{{0,4}}
      | (?P<call> \(\s{{0,2}}(?=["']) )
      | [ \t]{{1,4}}(?=["'][^"'\s]{{8,200}}["'])
      | (?P<apart> [ \t]{{1,4}})(?=[^\s"']{{16}})
      | (?P<tag> >)(?=[^\s<>]{{6,512}}</) )
    (?: [rbfuLR@]{{0,2}} (?P<quote>\\{{0,3}}["'`]) (?P<quoted>{QUOTED}{{6,256}}+)
      | (?P<bare>{BARE}{{6,256}}+) | (?P<wide>{WIDE}{{6,256}}+) )
    """
)
SAID = re.compile(
    r"(?i)(?:wor[dt]|phrase|)s?\b[^\n:=]{0,40}?"
    r"(?:\s(?:is|was|ist|lautet|to)\s{1,4}|:[*_ ]{1,6}|\s(?=`))[\"'`]?"
    r"(?P<secret>[^\s\"'`,]{8,200}+)"
)
"""A value in a sentence, as in `the password for the test machine is …`."""
CODE = re.compile(r"[()<>{}\[\]$\\=]|::|->|://")
QUOTE = re.compile(r"""\\{0,3}["'`]""")
AFTER = re.compile(r"""[\s,;&|"'\\<]|$""")
BEARER = re.compile(
    r"(?i:\b(?:bearer|basic|token|apikey)\s{1,4})(?P<secret>(?=[\w.~+/-]{0,512}?\d)[\w.~+/-]{20,512}+=*)"
)
FLAG = re.compile(
    r"(?i)--?(?:pass(?:word|phrase)?|secret|token|api-?key|auth)[ =]"
    r"(?P<secret>[^\s'\"$<>{}()\[\],;|&-][^\s'\"<>,;|&]{5,511})"
)
RANDOM = re.compile(r"""(?P<quote>\\?["'`])(?P<secret>[A-Za-z0-9+/_\-]{24,200}={0,2})(?P=quote)""")
APART = re.compile(r"(?<![\w+/=.%-])[\w+/.-]{24,}+")
PART = re.compile(r"[A-Za-z0-9_-]{24,}+")
LONGEST_APART = 400
BLOCK_BEFORE = re.compile(r"[\w+/=]{40,}[\"\\n]{0,4}\r?\n[ \t\"#*]{0,12}\Z")
BLOCK_AFTER = re.compile(r"[=\"\\n]{0,4}\r?\n[ \t\"#*]{0,40}[\w+/]{24}")
OF_OBJECTS = re.compile(
    r"(?:toolu|call|msg|chatcmpl|cmpl|resp|req|run|file|fc|rs|thread|asst|item|evt|event|cus|id|gen|batch|wrkspc|"
    r"user|org|session|chunk)[_-]|_Z|\w+-[A-Za-z0-9_]{8}$|AAAA[BCE]3Nza"
)
"""The beginnings of ids that services give to objects, and of public keys."""
ENV = re.compile(r"(?i:(?:export|set|env|arg|setenv|setx|-|\+|\$env:|#|//)?\s*)[\w.\-]*")
MOST_IN_A_RUN = 16
"""The most names in one run without spaces or quotes that are tried, since each of them reads the run."""
LOOKED_BACK = 64
"""The characters before a name in which the start of its line is looked for."""
SHOUTED = re.compile(r"(?:^|[\s\"'])[A-Z][A-Z0-9_]*$")
"""The start of a name that is written like an environment variable."""
SNAKE = re.compile(r"(?:\w+\.)*[a-z]+(?:_[a-z0-9]+)+|[\w.]+\.[A-Za-z_]\w+")
HASH_NAMES = re.compile(
    r"(?i)(?:sha\d*|md5|hash|digest|checksum|integrity|commit|revision|fingerprint|etag|uuid|guid|"
    r"h1|kid|sri)\W{0,6}$"
)


def by_name(text: str) -> Iterator[Match]:
    """Yield the values that are secret because of the name before them."""
    lowered, runs = _lower(text), RunEnds(text)
    if any(word in lowered for word in ("bearer", "basic", "token", "apikey")):
        for match in BEARER.finditer(text):
            if is_token(match["secret"]):
                yield "authorization", *match.span("secret")
    if any(word in lowered for word in ("-p", "-t", "-s", "-a")):
        for match in FLAG.finditer(text):
            if is_password(match["secret"]):
                yield "flag", *match.span("secret")
    yield from _after_names(text, lowered, runs)


def _after_names(text: str, lowered: str, runs: RunEnds) -> Iterator[Match]:
    for name in NAMES:
        tried: Counter[int] = Counter()
        for at in name.finditer(lowered):
            if name is NAMES[-1] and not OWNER_OF_KEY.search(lowered, max(0, at.start() - 16), at.start()):
                continue
            if "public" in lowered[max(0, at.start() - 10) : at.start()]:
                continue
            run = runs.end(WIDE, at.start())
            tried[run] += 1
            if tried[run] > MOST_IN_A_RUN:
                continue
            if value := VALUE.match(text, at.end()):
                yield from _value(text, at.start(), value, runs)
            said = SAID.match(text, at.end())
            if said and is_mixed(said["secret"].rstrip(".;")) and not CODE.search(said["secret"]):
                yield "named", *said.span("secret")


def by_chance(text: str) -> Iterator[Match]:
    """Yield the random strings, quoted or apart, except digests and ids with a name such as `sha256`."""
    for match in RANDOM.finditer(text):
        if _is_chance(text, *match.span("secret")):
            yield "chance", *match.span("secret")
    for match in APART.finditer(text):
        run = match[0]
        if len(run) <= LONGEST_APART and "+" not in run and ("/" not in run or run[0] == "/"):  # no data
            for part in PART.finditer(text, *match.span()):
                if _is_chance(text, *part.span()) and not _is_in_block(text, match):
                    yield "chance", *part.span()


def _is_chance(text: str, start: int, end: int) -> bool:
    named = HASH_NAMES.search(text, max(0, start - 24), start) or OF_OBJECTS.match(text, start, end)
    return not named and is_chance(text[start:end])


def _is_in_block(text: str, match: re.Match[str]) -> bool:
    """Return True for a line of nothing else beside another one, as in a certificate or a picture."""
    before = BLOCK_BEFORE.search(text, max(0, match.start() - 90), match.start())
    return bool(before or BLOCK_AFTER.match(text, match.end()))


def is_named(name: str, value: str) -> bool:
    """Return True when `name`, such as a key of a JSON object, names a secret and `value` looks like one."""
    secret = is_secret_name(name) and len(value) >= 6 and not re.search(r"\s", value[:256])
    return secret and (is_password(value) or is_mere_letters(value))


def is_secret_name(name: str) -> bool:
    """Return True for a name such as `DB_PASSWORD` or `api key`."""
    lowered = name.lower()
    last = lowered.rfind("key")
    named = last >= 0 and bool(OWNER_OF_KEY.search(lowered, 0, last))
    return named or any(part.search(lowered) for part in NAMES[:-1])


def _value(text: str, start: int, match: re.Match[str], runs: RunEnds) -> Iterator[Match]:
    """Yield the whole value of which `match` holds the start, if it looks like a secret."""
    if match["quoted"] is not None:
        end = runs.end(QUOTED, match.end("quoted"))
        real = is_mixed if match["call"] else is_password
        closed = text.startswith(match["quote"], end) or end == len(text)  # the text may be cut
        if closed and (real(match["quoted"]) or is_mere_letters(match["quoted"])):
            yield "named", match.start("quoted"), end
        return
    group = "bare" if match["bare"] is not None else "wide"
    at = match.start(group)
    end = runs.end(BARE, match.end(group)) if group == "bare" else at
    alone = bool(match["tag"]) or (not match["apart"] and _is_alone(text, start))
    if group == "bare" and AFTER.match(text, end):
        value = text[at : min(end, at + 256)]
        close = match["sign"] == "=" and text[at - 1] == "=" and bool(re.search("[0-9]", value))
        odd = close and bool(re.search(r"[^\w.:/+*-]", value))
        drawn = is_token(value) or ((alone or close) and is_mere_letters(value))
        if drawn or ((alone or odd) and is_password(value) and not SNAKE.fullmatch(value)):
            yield "named", at, end
    elif alone:
        end = runs.end(WIDE, at)
        value = text[at : min(end, at + 256)]
        if is_password(value.rstrip(",;)")) and re.search("[0-9]", value) and not SNAKE.fullmatch(value):
            yield "named", at, end


def is_mixed(value: str) -> bool:
    """Return True for a password that mixes kinds of characters.

    The argument of a call must pass this stricter test, since the name may be that of any function.
    """
    return is_password(value) and all(
        re.search(each, value) for each in ("[a-z]", "[0-9]", r"[A-Z]|[^\w./:-]")
    )


def _is_alone(text: str, start: int) -> bool:
    """Return True when the name begins its line, as in `DB_PASSWORD=…`, or is a variable before a command."""
    line = text.rfind("\n", max(0, start - LOOKED_BACK), start)
    if line < 0 and start > LOOKED_BACK:
        head = text[start - LOOKED_BACK : start]
        return bool(SHOUTED.search(head)) and text[start].isupper()
    head = text[line + 1 : start]
    shouted = bool(SHOUTED.search(head)) or not head
    return bool(ENV.fullmatch(head.strip())) or (shouted and text[start].isupper())


def _lower(text: str) -> str:
    """Return `text` in lower case and of the same length, so that positions stay valid.

    When a letter would become longer, only ASCII letters are changed.
    """
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if c.isascii() else c for c in text)
