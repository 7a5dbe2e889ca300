"""Whether a value was chosen or drawn to be secret, or is a word of a program or of a manual."""

import math
import re
from collections import Counter

READ = 512
"""Characters of a value that are judged: the others are like them."""
STAND_INS = re.compile(
    r"(?i)example|placeholder|change_?(?:me|it|this)|replace|your|dummy|sample|redacted|foo|bar|baz|none|null|true|"
    r"false|undefined|getenv|environ|fake|mock|todo|insert|secret|key|passw(?:or)?d|passphrase|token|test|user|admin|"
    r"api|here|my|the|value|string|auth|x{3,}|\*{3,}|\.{3,}|0?123456789?0?|12345|123|abcdef|abc|default|some|name|"
    r"access|client|hidden|invalid|valid|wrong|correct|super|very|long"
)
"""Words of which placeholders are made."""
LEAST_OWN = 5
"""Letters and digits that a value must have beside such words, if it has one."""
TEMPLATE = re.compile(
    r"^<|>$|\$\{|\$\(|\{\{|\{[\w.:!]*\}|%\(\w|%[sdr](?=$|[\s/._:&=-])|^\$\w+$|^%\w+%$|^@\w+@$|\(\?|\[\^|\w-\w\]|"
    r"\\[dwsbn]|^[\w.:>-]*[\w>]\(|^[\w.]+\[[\w:'\", ]*\]|^__\w+__$|^(?:\.{1,2}|~)/|"
    r"^/(?:[\w.-]{1,20}/)*[\w.-]{0,20}$|^[#&*]|^\(|^\[|^\{|::|->|=>|^--?[a-z][a-z-]*(?:=|$)|\)\.|\]\."
)
"""Variables, fields to be filled, calls, indices, types, regular expressions, paths."""
CODE = re.compile(
    r"[a-z_]+(?:[._/:-][a-z_]+)+|[A-Z_]+|[a-z]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)+|[\w.]+\.[a-z]{2,}\w*|"
    r"[A-Za-z_]+[(\[)\]:=,.;!?*\\]+|\w+=[A-Za-z_.]+",
    re.ASCII,
)
BRACKETS = re.compile(r"[(){}\[\]<>$]")
WORDS = re.compile(r"[A-Z]?[a-z]{3,}")
LEAST_WORDS = 0.5
SPREAD = 4.3
"""Bits a character of a quoted string of chance; English lies below 4, code identifiers below 4.2."""
CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]")))


def is_password(value: str) -> bool:
    """A value that somebody chose or drew, not a word of a program or of a manual."""
    value = value[:READ]
    if TEMPLATE.search(value) or CODE.fullmatch(value) or len(set(value)) < 5 or is_stand_in(value):
        return False
    classes = sum(bool(each.search(value)) for each in CLASSES)
    if classes < 3 and BRACKETS.search(value):
        return False
    return classes >= 2 and bool(re.search("[A-Za-z]", value) and re.search(r"[0-9]|[^\w.:/-]", value))


def is_stand_in(value: str) -> bool:
    """Whether little is left of `value` without the words of which placeholders are made.

    >>> is_stand_in("your-secret-key"), is_stand_in("MyPassword2024!x")
    (True, False)
    """
    own, found = STAND_INS.subn("", value)
    return bool(found) and sum(map(str.isalnum, own)) < LEAST_OWN


def is_token(value: str) -> bool:
    """Long, mixed and without a pattern."""
    return (
        len(value) >= 16
        and is_password(value)
        and bool(re.search("[0-9]", value[:READ]))
        and not _is_words(value[:READ])
    )


def is_chance(value: str) -> bool:
    """Letters of both cases and digits, spread as only random ones are."""
    if not (re.search("[a-z]", value) and re.search("[A-Z]", value) and len(re.findall("[0-9]", value)) >= 2):
        return False
    least = min(SPREAD, math.log2(len(value)) * 0.86)
    return not is_stand_in(value) and not _is_words(value) and spread(value) >= least


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
