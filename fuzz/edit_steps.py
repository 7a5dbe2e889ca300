"""The steps of a person in the histories of `edit_survival`: each is done on disk and on the lines.

A step raises SkippedError where it makes no sense, perhaps after it changed something.
"""

from collections.abc import Callable, Sequence

from fuzz.edit_histories import (
    COMMON,
    FAR,
    Hunk,
    Line,
    Proposal,
    Repository,
    SkippedError,
    copied,
    reformatted,
    respaced,
    swap,
    verdict,
)
from ostinato.edits.follow.edit import EditVerdict

TELLING = 60
"""The least number of characters that a person moves as a block: fewer could match by chance."""


def commit(here: Repository) -> None:
    here.commit("work")


def amend(here: Repository) -> None:
    if here.git("rev-list", "--count", "main..HEAD") == "0":
        raise SkippedError("nothing to amend")
    here.git("commit", "-q", "--amend", "--allow-empty", "-a", "-m", "amended")
    if here.is_clean:
        here.commits[here.head] = copied(here.files)


def squash(here: Repository) -> None:
    """Make one commit of all commits of the branch."""
    if int(here.git("rev-list", "--count", "main..HEAD")) < 2:
        raise SkippedError("too few commits")
    here.git("reset", "-q", "--soft", "main")
    here.commit("squashed")


def git_revert(here: Repository) -> None:
    """Run `git revert` on the commit that added an edit as a whole."""
    if not here.is_clean:
        raise SkippedError("not clean")
    edit = here.rng.choice(here.edits)
    commit_of = _commit_that_added(here, edit)
    for hunk in edit.hunks:
        swap(here.files, hunk, undo=True)
    here.git("revert", "--no-edit", commit_of)
    here.commits[here.head] = copied(here.files)


def git_revert_of_the_revert(here: Repository) -> None:
    if not here.is_clean or not here.git("log", "-1", "--format=%s").startswith('Revert "'):
        raise SkippedError("the last commit is no revert")
    edit = next((e for e in here.edits if verdict(e, here.files) is EditVerdict.REVERTED), None)
    if edit is None:
        raise SkippedError("nothing is reverted")
    for hunk in edit.hunks:
        swap(here.files, hunk, undo=False)
    here.git("revert", "--no-edit", "HEAD")
    here.commits[here.head] = copied(here.files)


def _commit_that_added(here: Repository, edit: Proposal) -> str:
    """Return the commit that added the whole edit, before which nothing of it existed."""
    commits = here.git("rev-list", "--first-parent", "--reverse", "main~0..HEAD").splitlines()
    known = [(sha, here.commits[sha]) for sha in commits if sha in here.commits]
    root = here.commits[here.git("rev-parse", "main")]
    for (_, was), (sha, now) in zip([("", root), *known], known, strict=False):
        if verdict(edit, was) is EditVerdict.REVERTED and verdict(edit, now) is EditVerdict.KEPT:
            return sha
    raise SkippedError("no commit of its own")


def undo_by_hand(here: Repository) -> None:
    edit = here.rng.choice(here.edits)
    for hunk in edit.hunks:
        swap(here.files, hunk, undo=True)
    here.save()


def redo_by_hand(here: Repository) -> None:
    edit = here.rng.choice(here.edits)
    if verdict(edit, here.files) is not EditVerdict.REVERTED:
        raise SkippedError("it is not reverted")
    for hunk in edit.hunks:
        swap(here.files, hunk, undo=False)
    here.save()


def undo_in_part(here: Repository) -> None:
    """Undo some hunks, of between a fifth and four fifths of the edit's weight."""
    edit = here.rng.choice(here.edits)
    hunks = here.rng.sample(edit.hunks, here.rng.randrange(1, len(edit.hunks) + 1))
    share = sum(hunk.weight for hunk in hunks) / sum(hunk.weight for hunk in edit.hunks)
    if verdict(edit, here.files) is not EditVerdict.KEPT or not 0.2 < share < 0.8:
        raise SkippedError("all or nearly nothing")
    for hunk in hunks:
        swap(here.files, hunk, undo=True)
    here.save()


def change_a_line(here: Repository) -> None:
    """Rewrite a line of an edit."""
    path, at, line = _line_of_an_edit(here)
    indent = line.text[: len(line.text) - len(line.text.lstrip())].rstrip("\n")
    text = f"{indent}mine_{here.rng.randrange(10**6)} = {here.rng.randrange(10**6)}\n"
    here.files[path][at] = Line(text, of=line.origin, changed=True)
    here.save()


def _line_of_an_edit(here: Repository) -> tuple[str, int, Line]:
    edit = here.rng.choice(here.edits)
    wanted = {line for hunk in edit.hunks for line in hunk.inserted if line.text.strip()}
    matches = [
        (path, at, line)
        for path, lines in here.files.items()
        for at, line in enumerate(lines)
        if line.origin in wanted
    ]
    if not matches:
        raise SkippedError("no line of it is left")
    return here.rng.choice(matches)


def work_elsewhere(here: Repository) -> None:
    """Insert, change or delete lines far from every edit."""
    path = here.rng.choice(sorted(here.files))
    at, mark = here.quiet_place(path), here.rng.randrange(10**6)
    how = here.rng.choice(("insert", "delete", "change"))
    new = (
        [] if how == "delete" else [Line(f"own_{mark}_{n} = {n}\n") for n in range(here.rng.randrange(1, 5))]
    )
    here.files[path][at : at + (how != "insert")] = new
    here.save()


def common_lines_elsewhere(here: Repository) -> None:
    """Write lines that an agent wrote too, in another place."""
    path = here.rng.choice(sorted(here.files))
    here.files[path][(at := here.quiet_place(path, far=2 * FAR)) : at] = map(Line, here.rng.choice(COMMON))
    here.save()


def work_beside_equal_lines(here: Repository) -> None:
    """Work beside lines that equal those of an edit and are older than it."""
    texts = {
        line.text for edit in here.edits for hunk in edit.hunks for line in hunk.inserted if line.text.strip()
    }
    busy = here.busy()
    places = [
        (path, at)
        for path, lines in here.files.items()
        for at, line in enumerate(lines)
        if line.text in texts and not busy & {near.origin for near in lines[max(0, at - FAR) : at + FAR]}
    ]
    if not places:
        raise SkippedError("no equal lines elsewhere")
    path, at = here.rng.choice(places)
    here.files[path].insert(at, Line(f"beside_{here.rng.randrange(10**6)} = True\n"))
    here.save()


def git_mv(here: Repository) -> None:
    path = here.rng.choice(sorted(here.files))
    target = f"{here.rng.choice(('', 'pkg/', 'new/'))}renamed_{next(here.names)}.py"
    _rename(here, path, target)
    (here.root / target).parent.mkdir(exist_ok=True)
    here.git("add", path)
    here.git("mv", path, target)


def plain_mv(here: Repository) -> None:
    path = here.rng.choice(sorted(here.files))
    _rename(here, path, f"moved_{next(here.names)}.py")
    here.save()


def rename_a_directory(here: Repository) -> None:
    target = f"dir_{next(here.names)}"
    old = sorted({path.split("/")[0] for path in here.files if "/" in path})
    if not old:
        raise SkippedError("no directory is left")
    for path in [path for path in here.files if path.startswith(old[0] + "/")]:
        _rename(here, path, target + path.removeprefix(old[0]))
    here.save()


def _rename(here: Repository, path: str, target: str) -> None:
    here.files[target] = here.files.pop(path)
    if path in here.crlf:
        here.crlf = (here.crlf - {path}) | {target}


def delete_the_file(here: Repository) -> None:
    if len(here.files) < 3:
        raise SkippedError("too few files")
    del here.files[here.rng.choice(sorted(here.files))]
    here.save()


def move_a_block(here: Repository) -> None:
    """Move the lines of a hunk as a whole to another place or file."""
    hunk = here.rng.choice(here.rng.choice(here.edits).hunks)
    if sum(len("".join(line.text.split())) for line in hunk.inserted) < TELLING or len(hunk.inserted) < 3:
        raise SkippedError("it is too short")
    source = next((path for path, lines in here.files.items() if hunk.inserted[0] in lines), None)
    if source is None:
        raise SkippedError("it was changed")
    swap(here.files, Hunk(hunk.before, (), hunk.inserted), undo=True)
    target = here.rng.choice(sorted(here.files))
    at = here.quiet_place(target)
    here.files[target][at:at] = hunk.inserted
    here.save()


def reformat(here: Repository) -> None:
    for path in here.files:
        reformatted(here.files, path, quotes=here.rng.random() < 0.5)
    here.save()


def respace(here: Repository) -> None:
    respaced(here.files, here.rng.choice(sorted(here.files)))
    here.save()


def windows_newlines(here: Repository) -> None:
    here.crlf ^= {here.rng.choice(sorted(here.files))}
    here.save()


def stash_and_pop(here: Repository) -> None:
    if here.is_clean:
        raise SkippedError("nothing to stash")
    here.git("stash", "-q", "-u")
    here.git("stash", "pop", "-q")


def _side_branch(here: Repository) -> tuple[str, str]:
    """Create a side branch with a person's commit; return its name and that of the work branch."""
    if not here.is_clean:
        raise SkippedError("not clean")
    work, side = here.git("branch", "--show-current"), f"side-{next(here.names)}"
    base = here.git("rev-parse", "main")
    path = here.rng.choice(sorted(set(here.files) & set(here.commits[base])))
    at = here.quiet_place(path)
    anchor, new = here.files[path][at - 1].origin, Line(f"theirs_{here.rng.randrange(10**6)} = 1\n")
    theirs = list(here.commits[base][path])
    if anchor not in theirs:
        raise SkippedError("the place is new")
    theirs.insert(theirs.index(anchor) + 1, new)
    here.git("switch", "-q", "-c", side, "main")
    (here.root / path).write_bytes("".join(line.text for line in theirs).encode())
    here.git("commit", "-q", "-a", "-m", "theirs")
    here.commits[here.head] = {**here.commits[base], path: theirs}
    here.git("switch", "-q", work)
    here.files[path].insert(at, new)
    return side, work


def rebase(here: Repository) -> None:
    side, _ = _side_branch(here)
    here.git("rebase", "-q", side)
    here.commits[here.head] = copied(here.files)


def merge(here: Repository) -> None:
    side, _ = _side_branch(here)
    here.git("merge", "-q", "--no-edit", side)
    here.commits[here.head] = copied(here.files)


def cherry_pick(here: Repository) -> None:
    side, work = _side_branch(here)
    _whole(here)
    here.git("switch", "-q", side)
    here.git("cherry-pick", f"main..{work}")
    here.commits[here.head] = copied(here.files)


def merge_squashed(here: Repository) -> None:
    side, work = _side_branch(here)
    _whole(here)
    here.git("switch", "-q", side)
    here.git("merge", "-q", "--squash", work)
    here.commit("squashed")


def _whole(here: Repository) -> None:
    """Skip unless every edit is whole, since absent lines cannot be followed to another branch."""
    if any(verdict(edit, here.files) is not EditVerdict.KEPT for edit in here.edits):
        raise SkippedError("an edit is not whole")


STEPS: Sequence[Callable[[Repository], None]] = (
    *(commit, commit, commit, amend, squash, git_revert, git_revert, git_revert_of_the_revert),
    *(undo_by_hand, redo_by_hand, undo_in_part, change_a_line, work_elsewhere, common_lines_elsewhere),
    *(common_lines_elsewhere, work_beside_equal_lines, git_mv, plain_mv, rename_a_directory),
    *(delete_the_file, move_a_block, move_a_block, reformat, respace, windows_newlines),
    *(stash_and_pop, rebase, merge, cherry_pick, merge_squashed),
)
