"""Semantic search from a sandbox to a real service and back; the same in production and in a sandbox."""

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest
from tests.search.toolbox import running

from ostinato.harness.errors import InvalidArguments, ProviderError
from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.providers.base import Providers
from ostinato.harness.providers.search import SandboxSearch, content_hash, contents, tree_hash
from ostinato.harness.users import SilentUser
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Sandbox, Spec
from ostinato.search import index


@pytest.fixture
async def service(tmp_path: Path):
    async with running(tmp_path / "search.db") as service:
        yield service


@pytest.fixture
def searcher(service, sandbox: Sandbox) -> SandboxSearch:
    return SandboxSearch(service.url, "key", sandbox)


async def places(search: SandboxSearch, query: str, path: str | None = None, k: int = 5):
    return [(hit.path, hit.first, hit.last) for hit in await search.search(query, path=path, k=k)]


async def test_the_answer_is_a_place_and_its_text(searcher: SandboxSearch):
    best = (await searcher.search("what does alpha do", path=None, k=3))[0]
    assert (best.path, best.first, best.last) == ("calc.py", 1, 2)
    assert best.text == "def alpha(a, b):\n    return a - b"


async def test_only_what_changed_is_sent(searcher: SandboxSearch, service, sandbox: Sandbox):
    await places(searcher, "alpha")
    assert service.index.embedded == 2
    await sandbox.write("calc.py", b"def gamma():\n    return 3\n")
    assert await places(searcher, "gamma") == [("calc.py", 1, 2)]
    await places(searcher, "alpha")
    assert service.index.embedded == 3


async def test_production_and_a_sandbox_give_the_same_answers(service, repo: Path, tmp_path: Path):
    here, copies = ProcessBackend(in_place=True), ProcessBackend()
    live, practice = await here.create(Spec(repo=repo)), await copies.create(Spec(repo=repo))
    try:
        found = [await places(SandboxSearch(service.url, "key", box), "alpha") for box in (live, practice)]
        assert found[0] == found[1] and found[0]
        hashes = [
            tree_hash({path: content_hash(data) for path, data in (await contents(box)).items()})
            for box in (live, practice)
        ]
        assert hashes[0] == hashes[1]
        assert service.index.embedded == 2, "the second found everything there"
    finally:
        await here.aclose()
        await copies.aclose()


async def test_both_sides_compute_the_same_hashes(sandbox: Sandbox):
    manifest = {path: content_hash(data) for path, data in (await contents(sandbox)).items()}
    assert tree_hash(manifest) == index.tree_hash(manifest)
    assert manifest["calc.py"] == index.content_hash(await sandbox.read("calc.py"))


async def test_ignored_secret_binary_and_large_files_stay_here(repo: Path, sandbox: Sandbox):
    await sandbox.write(".gitignore", b"*.log\n/out/\n")
    await sandbox.write("pkg/.gitignore", b"!keep.log\n")
    for path in ("a.log", "pkg/keep.log", "out/x.py", ".env", "deploy/id_rsa", "node_modules/m/i.js"):
        await sandbox.write(path, b"secret\n")
    await sandbox.write("data.bin", b"\0\1")
    await sandbox.write("big.txt", b"x" * (2**20 + 1))
    await sandbox.exec("ln -s nowhere broken; ln -s /etc/passwd outside; mkfifo pipe; ln -s . loop")
    names = {".gitignore", "pkg/.gitignore", "calc.py", "pkg/util.py", "pkg/keep.log"}
    assert set(await contents(sandbox)) == names


async def test_hostile_names_and_contents_are_found_like_any_other(searcher: SandboxSearch, sandbox: Sandbox):
    name = "a b\n'$(x)`.py"
    await sandbox.write(name, b"def zebra():\r\n    pass\r\n")
    await sandbox.write("latin.txt", b"caf\xe9 giraffe\n")
    await sandbox.write("deep.py", b"(" * 50_000 + b" # okapi")
    assert await places(searcher, "zebra") == [(name, 1, 2)]
    odd = os.fsdecode(b"d\xe9/\xff\n.py")
    await sandbox.write(odd, b"def walrus():\n    pass\n")
    assert await places(searcher, "walrus", path=os.fsdecode(b"d\xe9")) == [(odd, 1, 2)]
    assert await places(searcher, "giraffe") == [("latin.txt", 1, 1)]


async def test_paths_may_be_absolute_within_the_sandbox(searcher: SandboxSearch, sandbox: Sandbox):
    assert await places(searcher, "alpha", path=f"{sandbox.root}/pkg") == [("pkg/util.py", 1, 1)]
    assert await places(searcher, "alpha", path="pkg/") == await places(searcher, "alpha", path="./pkg")
    assert await places(searcher, "alpha", path="/etc") == []


async def test_what_the_model_asks_wrongly_is_its_fault(searcher: SandboxSearch):
    for query, k in (("", 5), ("alpha", 0), ("x" * 3000, 5)):
        with pytest.raises(InvalidArguments):
            await searcher.search(query, path=None, k=k)


async def test_a_forgetful_service_is_told_again(searcher: SandboxSearch, service):
    await places(searcher, "alpha")
    service.forget()
    assert await places(searcher, "alpha", k=1) == [("calc.py", 1, 2)]


async def test_a_wrong_key_and_a_dead_service_are_said(service, sandbox: Sandbox):
    with pytest.raises(ProviderError, match="refused with 401"):
        await SandboxSearch(service.url, "other", sandbox).search("x", path=None, k=1)
    with pytest.raises(ProviderError, match="does not answer"):
        await SandboxSearch("http://127.0.0.1:1", "key", sandbox).search("x", path=None, k=1)


async def test_one_connection_serves_many_searches(service, sandbox: Sandbox):
    async with aiohttp.ClientSession() as http:
        search = SandboxSearch(service.url, "key", sandbox, http)
        found = await asyncio.gather(*(places(search, "alpha") for _ in range(8)))
    assert all(each == found[0] for each in found)


async def test_the_tool_answers_with_places(searcher: SandboxSearch, sandbox: Sandbox):
    tools = Executor(
        sandbox,
        SilentUser(),
        command_timeout_s=2.0,
        profile=PROFILES["full"],
        providers=Providers(search=searcher),
    )
    observation = await tools.run("semantic_search", {"query": "alpha", "k": 1})
    assert observation.text == "calc.py:1-2\ndef alpha(a, b):\n    return a - b"
