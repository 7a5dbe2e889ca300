import pytest

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment
from ostinato.harness.tools.apply_patch import Change, ChangeKind, Hunk, apply, parse

TEXT = "import os\n\n\ndef a():\n    return 1\n\n\ndef b():\n    return 1\n"


def envelope(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch"


def patched(text: str, body: str) -> str:
    (change,) = parse(envelope(f"*** Update File: f.py\n{body}"))
    return apply(text, change.hunks, "f.py")


def test_a_patch_is_read() -> None:
    patch = envelope(
        "*** Add File: new.py\n+x = 1\n+\n*** Delete File: old.py\n*** Update File: a.py\n*** Move to: b.py\n"
        "@@ class A:\n@@ def f(self):\n-x\n+y\n\n@@\n z\n*** End of File"
    )
    assert parse("\n" + patch + "\n\n") == parse(patch.replace("\n", "\r\n"))
    assert parse(patch) == [
        Change(kind=ChangeKind.ADD, path="new.py", text="x = 1\n\n"),
        Change(kind=ChangeKind.DELETE, path="old.py"),
        Change(
            kind=ChangeKind.UPDATE,
            path="a.py",
            move_to="b.py",
            hunks=(
                Hunk(anchors=("class A:", "def f(self):"), lines=(("-", "x"), ("+", "y"), (" ", ""))),
                Hunk(anchors=(), lines=((" ", "z"),), at_end=True),
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("", "patch line 1: expected [*]{3} Begin Patch"),
        ("*** Begin Patch", r"stops without \*\*\* End Patch"),
        (envelope("*** Update File: a.py\n-x"), None),
        (envelope("*** Update File: a.py\n-x").removesuffix("\n*** End Patch"), "stops without"),
        ("*** Begin Patch\n*** End Patch", "line 2: the patch changes nothing"),
        (envelope("--- a.py"), "line 2: expected"),
        (envelope("*** Update File: "), "line 2: a path is missing"),
        (envelope("*** Update File: a.py"), "line 2: a.py has no hunk"),
        (envelope("*** Update File: a.py\nx"), "line 3: a line of a hunk starts with"),
        (envelope("*** Update File: a.py\n@@\n@@ x"), "an empty hunk"),
        (envelope("*** Update File: a.py\n@@\n+x"), "only adds needs a line around it"),
        (envelope("*** Add File: a.py\nx"), "line 3: a line of a new file"),
        (envelope("*** Delete File: a.py") + "\nmore", r"line 4: text after \*\*\* End Patch"),
    ],
)
def test_what_is_no_patch_is_said(patch: str, message: str | None) -> None:
    if message is None:
        assert parse(patch)
        return
    with pytest.raises(InvalidArguments, match=message):
        parse(patch)


def test_an_anchor_tells_repeated_regions_apart() -> None:
    hunk = "-    return 1\n+    return 2"
    with pytest.raises(UnexpectedEnvironment, match=r"f\.py: hunk 1 fits in several places"):
        patched(TEXT, hunk)
    assert patched(TEXT, "@@ def b():\n" + hunk) == TEXT[:-2] + "2\n"
    assert patched(TEXT, "@@ def a():\n" + hunk) == TEXT.replace("1", "2", 1)
    assert patched(TEXT, f"{hunk}\n*** End of File") == TEXT[:-2] + "2\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("-    return 3\n+x", "hunk 1 not found: return 3"),
        ("-  return 1\n+x", "hunk 1 not found"),
        ("@@ def c():\n-    return 1", "hunk 1 not found: @@ def c()"),
        ("-def b():\n@@\n-def a():", "hunk 2 not found: def a()"),
        ("-import os\n*** End of File", "hunk 1 is not the end of the file"),
    ],
)
def test_what_does_not_fit_is_refused(body: str, message: str) -> None:
    with pytest.raises(UnexpectedEnvironment, match=message):
        patched(TEXT, body)


def test_hunks_that_only_add() -> None:
    assert patched(TEXT, "@@ import os\n+import re") == TEXT.replace("os\n", "os\nimport re\n", 1)
    assert patched("a\n", "+b\n*** End of File") == "a\nb\n"
    assert patched("a", "+b\n*** End of File") == "a\nb"
    assert patched("", "+b\n*** End of File") == "b\n"


def test_what_was_not_named_stays() -> None:
    assert patched("a\r\nb\r\nc", "-a\n+x\n+y") == "x\r\ny\r\nb\r\nc"
    assert patched("a\r\nb\nc\n", "-b\n+x") == "a\r\nx\nc\n"
    assert patched("a\r\r\nb\n", "-a\r\n+x\r") == "x\r\r\nb\n"
    assert patched("a\x0c\nb\u2028b\n", "-b\u2028b\n+\x0b") == "a\x0c\n\x0b\n"
    assert patched("a\n", "-a") == ""
    assert patched("\n\n", "@@\n-\n+x\n*** End of File") == "\nx\n"
