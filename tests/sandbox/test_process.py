"""What only plain processes do: work in place."""

from pathlib import Path

from ostinato.sandbox import ProcessBackend, Spec


async def test_in_place_changes_the_repository_itself(repo: Path) -> None:
    backend = ProcessBackend(in_place=True)
    sandbox = await backend.create(Spec(repo=repo))
    assert sandbox.root == str(repo)
    await sandbox.write("calc.py", b"x = 1\n")
    await sandbox.exec("rm test_calc.py")
    assert (repo / "calc.py").read_text() == "x = 1\n"
    assert await sandbox.changes() == {"calc.py": b"x = 1\n", "test_calc.py": None}
    await backend.aclose()
    assert repo.is_dir()


async def test_a_copy_is_removed(repo: Path) -> None:
    backend = ProcessBackend()
    sandbox = await backend.create(Spec(repo=repo))
    assert Path(sandbox.root).is_dir()
    await backend.aclose()
    assert not Path(sandbox.root).parent.exists()


async def test_it_does_not_claim_to_be_a_boundary() -> None:
    assert not ProcessBackend().capabilities.boundary
