import os
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.tools.names import meant, presentable, shown
from ostinato.harness.users import ScriptedUser
from ostinato.sandbox.base import Sandbox

NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 47} & {*name})
ODD = [
    b"caf\xe9.txt",
    b"a\nb",
    b"\\xe9",
    b"\\x5cxe9",
    b"\xff\xfe",
    "é\u2028".encode(),
    b"d\xe9/\x1b[2Jx",
    b"a\\b",
]


@given(NAMES | st.sampled_from(ODD))
def test_every_name_has_one_form_that_means_it(name: bytes) -> None:
    form = shown(os.fsdecode(name))
    assert os.fsencode(meant(form)) == name
    assert form.encode() and len(form.splitlines()) == 1
    assert presentable(os.fsdecode(name)).encode()


async def test_a_name_that_is_shown_can_be_used_in_every_call(sandbox: Sandbox) -> None:
    tools = Executor(sandbox, ScriptedUser([]), command_timeout_s=2.0, profile=PROFILES["full"])

    async def said(tool: str, **arguments: object) -> str:
        text = (await tools.run(tool, arguments)).text
        assert text.encode()
        return text

    random = Random(16)
    any_bytes = [bytes(random.choices(range(1, 256), k=random.randint(1, 9))) for _ in range(24)]
    names = [*ODD, *(name for name in any_bytes if b"/" not in name)]
    for name in names:
        await sandbox.write(os.fsdecode(name), b"mark = 1\n")
    found = (await said("grep", pattern="mark")).split("\n")
    forms = [line.rpartition(":1:")[0] for line in found]
    assert sorted(os.fsencode(meant(form)) for form in forms) == sorted(names)
    assert {*forms} <= {*(await said("glob", pattern="**")).split("\n")}
    listed = (await said("ls")).split("\n")
    assert {form.partition("/")[0] + "/" * ("/" in form) for form in forms} <= {*listed}
    for form in forms:
        assert await said("read", path=form) == "mark = 1"
        assert await said("edit", path=form, old_string="1", new_string="2") == "ok"
        patch = f"*** Begin Patch\n*** Update File: {form}\n-mark = 2\n+mark = 3\n*** End Patch"
        assert await said("apply_patch", patch=patch) == "ok"
        assert await said("grep", pattern="mark", path=form) == f"{form}:1:mark = 3"
        folder = form.rpartition("/")[0] or "."
        assert form in (await said("glob", pattern="*", path=folder)).split("\n")
        assert await said("write", path=form, content="x\n") == "ok"
        assert await sandbox.read(meant(form)) == b"x\n"
    assert await said("bash", command="printf 'café\\351\\377'") == "café\\xe9\\xff"
    assert (await said("read", path="no\\xe9")).startswith("error: no such file no\\xe9")
