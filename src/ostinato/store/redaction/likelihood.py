"""Judgement of values: secrets were chosen or drawn by somebody, others are words of programs and manuals."""

import base64
import math
import re
from collections import Counter
from itertools import pairwise

READ = 512
"""Characters of a value that are judged; the others are assumed to be like them."""
STAND_INS = re.compile(
    r"(?i)example|placeholder|change_?(?:me|it|this)|replace|your|dummy|sample|redacted|foo|bar|baz|none|null|true|"
    r"false|undefined|getenv|environ|fake|mock|todo|insert|secret|key|passw(?:or)?d|passphrase|token|test|user|admin|"
    r"api|here|my|the|value|string|auth|x{3,}|\*{3,}|\.{3,}|0?123456789?0?|12345|123|abcdef|abc|default|some|name|"
    r"access|client|hidden|invalid|valid|wrong|correct|super|very|long"
)
"""The words that placeholders consist of."""
DOCUMENTED = re.compile(
    r"(?=.{16})(?:.*EXAMPLE|(?:pk_(?:test|live)|sb_publishable)_|phc_|.*(?:x{8}|X{8}))", re.DOTALL
)
"""Tokens that manuals print, and those that pages give to every visitor."""
LEAST_OWN = 5
"""Letters and digits that a value must have beside such words, if it holds one."""
TEMPLATE = re.compile(
    r"^<|>$|\$\{|\$\(|\{\{|\{[\w.:!]*\}|%\(\w|%[sdr](?=$|[\s/._:&=-])|^\$\w+$|^%\w+%$|^@\w+@$|\(\?|\[\^|\w-\w\]|"
    r"\\[dwsbn]|^[\w.:>-]*[\w>]\(|^[\w.]+\[[\w:'\", .+*-]*\]|^__\w+__$|^(?:\.{1,2}|~)/|"
    r"^/(?:[\w.-]{1,20}/)*[\w.-]{0,20}$|^[#&*]|^\(|^\[|^\{|::|->|=>|^--?[a-z][a-z-]*(?:=|$)|\)\.|\]\."
)
"""Variables, fields to be filled in, calls, indices, types, regular expressions and paths."""
CODE = re.compile(
    r"[a-z_]+(?:[._/:-][a-z_]+)+|[A-Z_]+|[a-z]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)+|[\w.]+\.[a-z]{2,}\w*|"
    r"[A-Za-z_]+[(\[)\]:=,.;!?*\\]+|\w+=[A-Za-z_.]+",
    re.ASCII,
)
BRACKETS = re.compile(r"[(){}\[\]<>$]")
WORDS = re.compile(r"[A-Z]?[a-z]{3,}")
LEAST_WORDS = 0.5
SPREAD = 4.3
"""Least entropy of a random string, bits per character; English lies below 4, code identifiers below 4.2."""
LEAST_PIECE = 10
"""Letters and digits in one piece of a token, between its hyphens and dots: a UUID has twelve."""
CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]")))


def is_password(value: str) -> bool:
    """Return True for a value that somebody chose or drew, False for a word of a program or of a manual."""
    value = value[:READ]
    if TEMPLATE.search(value) or CODE.fullmatch(value) or len(set(value)) < 5 or is_stand_in(value):
        return False
    if is_documented(value):
        return False
    classes = sum(bool(each.search(value)) for each in CLASSES)
    if classes < 3 and BRACKETS.search(value):
        return False
    return classes >= 2 and bool(re.search("[A-Za-z]", value) and re.search(r"[0-9]|[^\w.:/-]", value))


def is_documented(value: str) -> bool:
    """Return True for a token that everybody may see: an example of a manual, or a publishable key.

    >>> is_documented("AKIAIOSFODNN7EXAMPLE"), is_documented("AKIAIOSFODNN7EXAMPLQ")
    (True, False)
    """
    return bool(DOCUMENTED.match(value[:READ]))


def is_stand_in(value: str) -> bool:
    """Return True when little is left of `value` without the words that placeholders consist of.

    >>> is_stand_in("your-secret-key"), is_stand_in("MyPassword2024!x")
    (True, False)
    """
    rest, words = STAND_INS.subn("", value)
    return bool(words) and sum(map(str.isalnum, rest)) < LEAST_OWN


def is_token(value: str) -> bool:
    """Return True for a long value of letters and digits that is not made of words."""
    return (
        len(value) >= 16
        and is_password(value)
        and bool(re.search("[0-9]", value[:READ]))
        and not _is_words(value[:READ])
    )


def is_chance(value: str) -> bool:
    """Return True for letters of both cases and digits that are as evenly spread as only random ones are."""
    if not (re.search("[a-z]", value) and re.search("[A-Z]", value) and len(re.findall("[0-9]", value)) >= 2):
        return False
    least = min(SPREAD, math.log2(len(value)) * 0.86)
    if sum(ord(b) - ord(a) == 1 for a, b in pairwise(value)) > len(value) / 4:  # an alphabet
        return False
    if is_documented(value) or _is_json(value):
        return False
    return not is_stand_in(value) and not _is_words(value) and spread(value) >= least


def _is_json(value: str) -> bool:
    """Return True for base64 of an object of JSON, such as the header of a JWT: what it says is no chance."""
    try:
        text = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)) if value[:3] == "eyJ" else b""
    except ValueError:
        return False
    return text.isascii() and text.startswith(b'{"') and text.rstrip().endswith(b"}")


def is_drawn(value: str) -> bool:
    """Return True for letters and digits that change kind as often as chance makes them, as hexadecimal does.

    So must one of its pieces: names of platforms and versions change kind as often, but between pieces.

    >>> is_drawn("3f786850e387550fdab836ed"), is_drawn("a_very_long_name_of_2_tables")
    (True, False)
    >>> is_drawn("v657-x86_64-with-glibc2.36")
    False
    """
    value = value[:READ]
    if not _changes_often(value, 16) or is_stand_in(value):
        return False
    return any(_changes_often(piece, LEAST_PIECE) for piece in re.split("[^A-Za-z0-9]", value))


def _changes_often(value: str, least: int) -> bool:
    kinds = "".join("0" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else "" for c in value)
    changes = sum(map(str.__ne__, kinds, kinds[1:]))
    return "0" in kinds and len(kinds) >= least and changes >= len(kinds) / 5


def is_mere_letters(value: str) -> bool:
    """Return True for letters that make no words, as only chance puts them together.

    >>> is_mere_letters("pjvpgvcUHgGlsbjaYOdDPoQC"), is_mere_letters("correctHorseBattery")
    (True, False)
    """
    value = value[:READ]
    if not (len(value) >= 16 and value.isascii() and value.isalpha()) or is_stand_in(value):
        return False
    pairs = {value[i : i + 2].lower() for i in range(len(value) - 1)}
    return sum(pair in COMMON for pair in pairs) < len(pairs) * LEAST_COMMON


COMMON = """
th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of al de se le sa si ar ve
ra ld ur co me ne ro li ri io ic ma ce ll om ch us la el ec ac ho no ta tr ct un pe di ns ss lo em ot so il
ge ie ul pa be po ca pr na rs ut ai id ol ad am ir mo ig im op ee fo wi we ow ts tu ke su do uc ag ab ap ep
ev ex up oo vi fi
"""
"""The pairs of letters that English is mostly made of; of random letters they are about a sixth."""
LEAST_COMMON = 0.45


def _is_words(value: str) -> bool:
    """Return True for a value of mostly words, like a program's names: chance leaves few letters together."""
    return sum(map(len, WORDS.findall(value))) >= len(value) * LEAST_WORDS


def spread(text: str) -> float:
    """Return the Shannon entropy of the characters of `text`, in bits per character.

    >>> spread("aabb")
    1.0
    """
    n = len(text)
    return -sum(count / n * math.log2(count / n) for count in Counter(text).values())
