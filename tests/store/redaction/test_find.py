"""Secrets are found wherever they stand, and ordinary source is left alone.

Covers store/redaction/find.py, store/redaction/known_forms.py, store/redaction/by_name.py,
store/redaction/layouts.py, store/redaction/likelihood.py, store/redaction/run_ends.py and
store/redaction/views.py.
"""

import json
import random
import sysconfig
import time
from itertools import pairwise
from pathlib import Path

import pytest
from fuzz.planted_secrets import FORMS, plant, removed
from fuzz.secret_layouts import OPENED, PUBLIC, draw_all
from fuzz.secret_shapes import SHAPES
from fuzz.secret_shapes import draw as draw_form
from hypothesis import given
from hypothesis import strategies as st

from ostinato.store.redaction.find import SHARED, WINDOW, find, redact, redact_json


def found(text: str) -> list[str]:
    return [text[secret.start : secret.end] for secret in find(text)]


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ('api_key = "q8Zt3LmX90pWv2Rb"', ["q8Zt3LmX90pWv2Rb"]),
        ("export DB_PASSWORD=t1ger!Horse", ["t1ger!Horse"]),
        ('{"client_secret": "q8Zt3LmX90pWv2Rb"}', ["q8Zt3LmX90pWv2Rb"]),
        (r"{\"password\": \"t1ger!Horse\"}", ["t1ger!Horse"]),
        ("postgres://app:t1ger!Horse@db:5432/app", ["t1ger!Horse"]),
        ("Authorization: Bearer q8Zt3LmX90pWv2RbAA77xx", ["q8Zt3LmX90pWv2RbAA77xx"]),
        ("mysql --password t1ger!Horse app", ["t1ger!Horse"]),
        ('password = "MyPassword2024!x"', ["MyPassword2024!x"]),
        ('password = "testing9!Kq7"', ["testing9!Kq7"]),
        ("DB_PASSWORD=ab[c$D9)x!", ["ab[c$D9)x!"]),
        ("machine h login ada password t1ger!Horse", ["t1ger!Horse"]),
        ("db:5432:shop:app:t1ger!Horse", ["t1ger!Horse"]),
        ("curl -u ada:t1ger!Horse https://h", ["t1ger!Horse"]),
        ("mysql -uroot -pt1ger!Horse shop", ["t1ger!Horse"]),
        ("sshpass -p t1ger!Horse ssh h", ["t1ger!Horse"]),
        ("Cookie: a=b; sid=q8Zt3LmX90pWv2RbAA77", ["q8Zt3LmX90pWv2RbAA77"]),
        ("a  dDpnaHBfYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU2Nzg5  ", None),
        ("x = 'AKIAIOSFODNN7ABCDEFG'", ["AKIAIOSFODNN7ABCDEFG"]),
        (
            "used pul-3f786850e387550fdab836ed7e6dc881de23001b now",
            ["pul-3f786850e387550fdab836ed7e6dc881de23001b"],
        ),
        ("see q8Zt3LmX90pWv2RbAA77xxY4 there", ["q8Zt3LmX90pWv2RbAA77xxY4"]),
        ('api_key = "pjvpgvcUHgGlsbjaYOdDPoQC"', ["pjvpgvcUHgGlsbjaYOdDPoQC"]),
        ("Server=d;User Id=sa;Password=p(w$)<x9>!;Encrypt=1", ["p(w$)<x9>!"]),
        ("| user | password |\n|--|--|\n| ada | t1ger!Horse |", ["t1ger!Horse"]),
        ("name,api_key\nada,t1ger!Horse\nbob,L1on!Horse", ["t1ger!Horse", "L1on!Horse"]),
        ("kind: Secret\ndata:\n  a: /1tZ9g==\ntype: Opaque", ["/1tZ9g=="]),
        (f"ada:$2y$10${'aB3./' * 10}xyz", [f"$2y$10${'aB3./' * 10}xyz"]),
        (r'{"a": "gl\u0070at\u002dabcdefghij0123456789"}', [r"gl\u0070at\u002dabcdefghij0123456789"]),
        ("u=postgres%3A%2F%2Fapp%3At1gerHorse99%40db%2Fx", ["t1gerHorse99"]),
        ('x = ("glpat-abcdefghij"\n     "0123456789")', ['glpat-abcdefghij"\n     "0123456789']),
        (
            "AKIAIOSFODNN7ABCDEFG q8Zt3LmX90pWv2RbAA77xx/q8Zt3LmX90pWv2Rb1"[:61],
            ["AKIAIOSFODNN7ABCDEFG", "q8Zt3LmX90pWv2RbAA77xx/q8Zt3LmX90pWv2Rb1"[:40]],
        ),
        ("https://h/x?X-Amz-Signature=3f786850e387550f", ["3f786850e387550f"]),
        ("https://h/hooks/x7mqcm7jei9p8hw3gojplfb590", ["x7mqcm7jei9p8hw3gojplfb590"]),
        ("The password for the box is t1ger!Horse9x, ok?", ["t1ger!Horse9x"]),
        ("a -----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY----- b", None),
    ],
)
def test_a_secret_is_found(text: str, secrets: list[str] | None) -> None:
    assert found(text) == (secrets or [text[2:-2].strip()])


@pytest.mark.parametrize(
    "text",
    [
        'password = "your-password-here"',
        'api_key = os.environ["API_KEY"]',
        "token = tokens[0]",
        "PASSWORD=${PASSWORD}",
        'secret = "<redacted>"',
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        'sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
        'integrity: "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlO=="',
        "def authenticate(self, password: str) -> Token:",
        "http://localhost:8080/path@v2",
        "git@github.com:owner/name.git",
        'KEYWORDS = "class def return yield lambda nonlocal"',
        "key = keys.index(name)",
        "call toolu_01q8Zt3LmX90pWv2RbAA77xx",
        'resolved: "h1:q8Zt3LmX90pWv2RbAA77xxq8Zt3LmX90pWv2RbAA77x="',
        "chunks: dist/index-q8Zt3LmX.js 9f86d081884c7d659a2feaa0c55ad015",
        "| key | value |\n|--|--|\n| name | q1ger!Horse |",
        "def pad(\n    tokens,\n    side='left1!',\n):",
        "the token is refreshed by `renewToken2()` and the password is required",
        r"a path C:\\u0070 and 100%25 of it",
        "Platform: Linux-6.18.44-fc-v657-x86_64-with-glibc2.36",
        "uname -r: fc-6.18.44-v657-lowlatency-x86_64-glibc2.36",
        "sk_amd64-3.11.9-cu126-manylinux_2_17_x86_64.whl and locale-sk-2026-11-28-build-2c7f-rc1",
        'x = ("the first part of a sentence"\n     "and the second 2")',
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize("text", PUBLIC)
def test_what_manuals_print_and_pages_give_away_is_no_secret(text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize("seed", range(3))
def test_what_commands_set_and_open_is_found(seed: int) -> None:
    drawn = [each for each in draw_all(random.Random(seed)) if each.form.startswith(OPENED)]
    missed = [each.form for each in drawn if not all(covered(each.text, secret) for secret in each.secrets)]
    assert len(drawn) > 20 and not missed


@pytest.mark.parametrize("form", SHAPES)
def test_secrets_of_new_forms_are_found(form: str) -> None:
    """At least 85 of 100 of each form are found; `benchmarks/redaction.py` measures it with an interval."""
    rng = random.Random(f"{form} 3")
    drawn = [draw_form(form, rng) for _ in range(40)]
    assert sum(covered(f"x = 1\n{each.text}\ny = 2\n", each.secret) for each in drawn) >= 34


def test_secrets_of_published_forms_are_found() -> None:
    """Of 457 forms, 96 in 100 are found whole; no rule was made with the sealed half: 88 in 100."""
    for sealed, least in ((False, 0.96), (True, 0.88)):
        drawn = [each for each in draw_all(random.Random(4)) if each.sealed == sealed]
        whole = [all(covered(each.text, secret) for secret in each.secrets) for each in drawn]
        assert sum(whole) >= least * len(whole)


def test_a_value_of_any_length_is_removed_whole() -> None:
    for size in (300, 5_000, 700_000):
        value = "".join(random.Random(size).choices("abcXYZ0123456789+/", k=size))
        plain = value.replace("+", "_").replace("/", "-")
        for text in (f"AWS_SESSION_TOKEN={value}", f'client_secret: "{value}"', f"x sk-{plain}"):
            (secret,) = find(f"a\n{text}\nb")
            assert secret.end - secret.start >= size


def test_a_long_text_is_searched_to_its_end() -> None:
    """Windows find a secret across their ends exactly once."""
    line = "the quick brown fox jumps over the lazy dog\n"
    secret = 'api_key = "q8Zt3LmX90pWv2Rb"\n'
    for before in (WINDOW - 40, WINDOW - SHARED - 10, WINDOW, 3 * WINDOW - 20):
        text = (line * (before // len(line) + 1))[:before] + "\n" + secret + line * 1_000
        assert found(text) == ["q8Zt3LmX90pWv2Rb"]
        assert found(text.replace("\n", " ")) == ["q8Zt3LmX90pWv2Rb"]


@pytest.mark.parametrize(
    "unit",
    [
        "token=Abcdefg!, ",
        "password=",
        "key: |\n",
        "eyJ-",
        "eyJa.",
        "sk-a1",
        "://a:b1",
        "curl -u a:",
        "QUJD",
        '"aA1',
        "\\u0061",
        "token|key\n",
        'a"\n"',
        "password is a",
        "kind: Secret\ndata:\n",
        "--set a.token=",
        "-e A_KEY=b1 ",
        "openssl -k",
        "Private-Lines: 1\nAA",
        "sig=%2B",
    ],
)
def test_time_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    """CPU time of this thread: four times the text takes about four times as long, and not sixteen."""

    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        return min(_spent(text) for _ in range(2))

    assert seconds(2**18) < 9 * seconds(2**16) + 0.02


def _spent(text: str) -> float:
    began = time.thread_time()
    find(text)
    return time.thread_time() - began


def covered(text: str, secret: str) -> bool:
    at = text.index(secret)
    parts = [min(s.end, at + len(secret)) - max(s.start, at) for s in find(text)]
    return sum(part for part in parts if part > 0) >= len(secret) - 3


def test_planted_secrets_are_removed() -> None:
    rng = random.Random(1)
    planted = [each for each in (plant(rng) for _ in range(400)) if each.family != "nothing but chance"]
    missed = [each for each in planted if not removed(f"x = 1\n{each.line}\ny = 2", each)]
    assert not missed


def test_real_source_is_left_alone() -> None:
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    names = ("ast", "argparse", "ssl", "secrets", "http/client", "smtplib", "getpass", "tokenize", "hashlib")
    assert [(name, found(text)) for name in names if found(text := (stdlib / f"{name}.py").read_text())] == []


def test_every_form_leaves_its_name() -> None:
    rng = random.Random(2)
    for name, draw in FORMS.items():
        secret = draw(rng)
        redacted = redact(f"({secret})")
        assert redacted.startswith("([redacted ") and redacted.endswith("])"), (name, secret, redacted)


def test_json_is_redacted_inside_and_by_name() -> None:
    value = {
        "password": "t1ger!Horse",
        "n": 1,
        "list": ["x", {"t": "glpat-abcdefghij0123456789"}],
        "ok": True,
    }
    told = redact_json(value)
    assert told["password"] == "[redacted named]"
    assert told["list"][1]["t"] == "[redacted gitlab_token]"
    assert (told["n"], told["ok"], told["list"][0]) == (1, True, "x")
    assert "t1ger" not in json.dumps(told)


@given(st.text(max_size=200))
def test_redacting_any_text_twice_changes_nothing_more(text: str) -> None:
    redacted = redact(text)
    secrets = find(text)
    assert all(a.end <= b.start for a, b in pairwise(secrets))
    assert (redacted == text) == (not secrets)


@pytest.mark.parametrize(
    "text", ["sk-" * 20_000, "eyJ-" * 20_000, "password=" * 10_000, "://" * 20_000, "-----BEGIN " * 9000]
)
def test_text_made_to_be_slow_is_searched(text: str) -> None:
    assert len(find(text)) < len(text)
