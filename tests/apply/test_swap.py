"""Files swapped and put back: every byte and attribute, at any end, and nobody else's bytes."""

import contextlib
import errno
import itertools
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from change_files import Change, begin, sha256, snapshot
from tiers import REPEAT, dice, draws

from nginx_tune.change.apply import calls, swap
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.model_journal import (
    ForeignError,
    Kept,
    RefusedError,
    Swapping,
    encode_record,
    read_story,
)
from nginx_tune.change.apply.swap import clear, look, put_back, swap_in
from nginx_tune.change.apply.undo import recover
from nginx_tune.host.live import LiveHost

NODUMP = 0x40
"""A flag of chattr(1) that changes nothing else. Source: include/uapi/linux/fs.h."""


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


def make_tree(place: Path) -> Path:
    path = place / "etc"
    (path / "conf.d").mkdir(parents=True)
    (path / "nginx.conf").write_bytes(b"events {}\nhttp { include conf.d/*; }\n")
    (path / "conf.d" / "site.conf").write_bytes(b"server { listen 80; }\n")
    return path


def _edits(tree: Path) -> dict[Path, bytes]:
    return {
        tree / "nginx.conf": b"worker_processes 4;\nevents {}\nhttp { include conf.d/*; }\n",
        tree / "conf.d" / "site.conf": b"server { listen 80 backlog=4096; }\n",
        tree / "conf.d" / "tuned.conf": b"sendfile on;\n",
    }


def _random_tree(tree: Path, draw: random.Random) -> dict[Path, bytes]:
    edits = {}
    for number in range(draw.randint(1, 5)):
        path = tree / draw.choice(["", "conf.d"]) / f"f{number} {draw.choice(['é', 'x', '~'])}"
        content = draw.randbytes(draw.choice([0, 1, 20, 70_000]))
        path.unlink(missing_ok=True)  # of a round before: it may not be writable
        if draw.random() < 0.7:
            path.write_bytes(content)
            path.chmod(draw.choice([0o644, 0o600, 0o444, 0o2755, 0o640]))
            if os.geteuid() == 0:
                os.chown(path, draw.choice([0, 33]), draw.choice([0, 4]))
            if draw.random() < 0.5:
                with contextlib.suppress(OSError):  # not every file system has them
                    os.setxattr(path, "user.note", draw.randbytes(draw.randint(0, 30)))
            if draw.random() < 0.5:
                with contextlib.suppress(OSError), path.open("rb") as file:
                    flags = calls.inode_flags(file.fileno()) | NODUMP
                    calls.set_inode_flags(file.fileno(), flags)
            os.utime(path, ns=(draw.randrange(10**18), draw.randrange(10**18)))
        edits[path] = content + b"\n" + draw.randbytes(draw.randint(0, 50))
    return edits


@pytest.mark.parametrize("keeps", [False, True])
def test_random_changes_give_every_byte_and_attribute_back(
    tree: Path, state: State, *, keeps: bool
) -> None:
    draw = dice(f"random changes, {keeps}")
    for _ in range(draws(10, 200)):
        edits = _random_tree(tree, draw)
        before = snapshot(tree)
        change = begin(state, edits)
        change.stage()
        swap_in(change.entries)
        for path, content in edits.items():
            assert path.read_bytes() == content
        for entry in change.entries:
            if entry.attributes is not None:
                assert Path(entry.path).stat().st_mode & 0o7777 == entry.attributes.mode
        if keeps:  # the old file itself is gone then: it is made anew from its copy
            assert clear(change.entries) == {}
        for _ in range(2):
            put_back(change.entries, change.journal.original)
            assert snapshot(tree) == before, REPEAT


def _killed_after(number: int, work: Callable[[], None]) -> str:
    """Run it in a child that is killed behind a changing call; which one, or empty at its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = 0

        def count(name: str) -> None:
            nonlocal told
            told += 1
            if told == number:
                os.write(writing, name.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        calls.after_call = count
        try:
            work()
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as said:
        name = said.read().decode()
    return name if os.WIFSIGNALED(status) else ""


def _apply(change: Change, *, keeps: bool) -> None:
    change.stage()
    swap_in(change.entries)
    change.journal.append(Swapping())
    if keeps:
        change.journal.append(Kept())
        clear(change.entries)


def _finish(change: Change) -> None:
    """What the next start does: a change that was kept stays, all else is taken back."""
    if change.journal.read().phase == "kept":
        clear(change.entries)
    else:
        put_back(change.entries, change.journal.original)


def _hidden(tree: Path) -> list[str]:
    return [path.name for path in tree.rglob(".*")]


@pytest.mark.long
def test_killed_behind_every_call_it_is_the_old_tree_or_the_new_one(
    tree: Path, state: State
) -> None:
    """A change that is kept: one that is not kept is its beginning."""
    before = snapshot(tree)
    names = set()
    for number in range(1, 200):
        change = begin(state, _edits(tree))
        name = _killed_after(number, partial(_apply, change, keeps=True))
        names.add(name)
        was_kept = change.journal.read().phase == "kept"
        _finish(change)
        if was_kept:
            assert all(look(entry) == "new" for entry in change.entries), name
            put_back(change.entries, change.journal.original)
        assert snapshot(tree) == before, (number, name)
        assert not _hidden(tree)
        if not name:
            break
    assert not name
    assert {"renameat2", "fsync", "write", "open", "fchmod"} < names


@pytest.mark.long
def test_killed_behind_every_call_of_a_rollback_the_next_one_ends_it(
    tree: Path, state: State
) -> None:
    before = snapshot(tree)
    for is_cleared in (False, True):
        for number in range(1, 100):
            change = begin(state, _edits(tree))
            _apply(change, keeps=is_cleared)
            name = _killed_after(number, partial(put_back, change.entries, change.journal.original))
            put_back(change.entries, change.journal.original)
            assert snapshot(tree) == before, (number, name)
            if not name:
                break
        assert not name


def test_at_each_moment_every_file_is_whole(tree: Path, state: State) -> None:
    edits = _edits(tree)
    whole = {str(path): {content} for path, content in edits.items()}
    for path in edits:
        whole[str(path)].add(path.read_bytes() if path.exists() else None)  # type: ignore[arg-type]
    change = begin(state, edits)
    looks = 0

    def check(_name: str) -> None:
        nonlocal looks
        looks += 1
        for path in edits:
            now = path.read_bytes() if path.exists() else None
            assert now in whole[str(path)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "after_call", check)
        _apply(change, keeps=False)
        put_back(change.entries, change.journal.original)
    assert looks > 40


def test_a_file_changed_since_the_plan_is_refused_and_stays(tree: Path, state: State) -> None:
    change = begin(state, _edits(tree))
    change.stage()
    site = tree / "conf.d" / "site.conf"
    site.write_bytes(b"# the operator's\n")
    before = snapshot(tree)
    with pytest.raises(RefusedError, match=r"site\.conf: changed since"):
        swap_in(change.entries)
    assert site.read_bytes() == b"# the operator's\n"
    put_back(change.entries, change.journal.original)  # it was never exchanged: nothing is stuck
    assert site.read_bytes() == b"# the operator's\n"
    assert not _hidden(tree)
    assert (tree / "nginx.conf").read_bytes() == b"events {}\nhttp { include conf.d/*; }\n"
    assert set(snapshot(tree)) <= set(before)


def test_a_file_that_came_meanwhile_is_not_overwritten(tree: Path, state: State) -> None:
    change = begin(state, _edits(tree))
    change.stage()
    (tree / "conf.d" / "tuned.conf").write_bytes(b"theirs\n")
    with pytest.raises(RefusedError, match="a file exists there now"):
        swap_in(change.entries)
    assert (tree / "conf.d" / "tuned.conf").read_bytes() == b"theirs\n"


def _replaced(path: Path, content: bytes) -> None:
    other = path.with_name(path.name + ".theirs")
    other.write_bytes(content)
    other.replace(path)


NAMES = ("nginx.conf", "conf.d/site.conf", "conf.d/tuned.conf")


def test_what_others_wrote_since_is_not_overwritten_and_nothing_is_mixed(tmp_path: Path) -> None:
    for number, (name, write) in enumerate(itertools.product(NAMES, (_replaced, Path.write_bytes))):
        tree = make_tree(tmp_path / str(number))
        change = begin(State(tmp_path / f"state-{number}"), _edits(tree))
        _apply(change, keeps=True)
        write(tree / name, b"# newer\n")
        after = snapshot(tree)
        for _ in range(2):
            with pytest.raises(ForeignError, match="somebody else wrote to it") as caught:
                put_back(change.entries, change.journal.original)
            assert caught.value.paths == [str(tree / name)]
            assert snapshot(tree) == after, name


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_write_at_any_call_survives(tree: Path, state: State, name: str) -> None:
    theirs = b"# written by somebody else at that moment\n"
    original = {path: path.read_bytes() for path in _edits(tree) if path.exists()}
    for number in range(1, 100):
        for path in _edits(tree):
            path.unlink(missing_ok=True)
        for path, content in original.items():
            path.write_bytes(content)
        change = begin(state, _edits(tree))
        left = [number]

        def interfere(_name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                _replaced(tree / name, theirs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls, "after_call", interfere)
            try:
                change.stage()
                swap_in(change.entries)
                put_back(change.entries, change.journal.original)
            except (RefusedError, ForeignError):
                pass
        if left[0] > 0:
            break
        assert (tree / name).read_bytes() == theirs, number
        for path in tree.rglob(".*nginx-tune*"):
            path.unlink()
    assert number > 20


def test_bytes_written_into_the_replaced_file_are_kept_and_named(tree: Path, state: State) -> None:
    change = begin(state, _edits(tree))
    change.stage()
    with (tree / "nginx.conf").open("ab") as editor:  # opened before the exchange
        swap_in(change.entries)
        editor.write(b"# late\n")
    left = clear(change.entries)
    assert [Path(path).read_bytes()[-7:] for path in left] == [b"# late\n"]
    put_back(change.entries, change.journal.original)
    assert (tree / "nginx.conf").read_bytes().endswith(b"# late\n")


def test_what_a_read_only_disk_kept_is_cleared_by_the_next_recovery(
    tree: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails by it: the change is kept, or taken back, as the journal says."""

    def refuse(_directory: int, name: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    change = begin(state, _edits(tree))
    with monkeypatch.context() as patched:
        change.stage()
        swap_in(change.entries)
        change.journal.append(Kept())
        patched.setattr(calls, "unlink", refuse)
        left = clear(change.entries)
    edits = [entry for entry in change.entries if entry.kind == "edit"]
    assert set(left.values()) == {"not removed: Read-only file system"}
    hidden = set(tree.rglob(".*nginx-tune*"))
    assert len(hidden) == len(edits)
    assert not recover(LiveHost(), state), "nothing is taken back"
    assert not set(tree.rglob(".*nginx-tune*"))
    assert all(look(entry) == "new" for entry in change.entries)


def test_a_damaged_copy_is_not_put_back(tree: Path, state: State) -> None:
    change = begin(state, _edits(tree))
    _apply(change, keeps=True)
    (change.journal.directory / "original-0").write_bytes(b"")
    after = snapshot(tree)
    with pytest.raises(Exception, match="damaged"):
        put_back(change.entries, change.journal.original)
    assert (tree / "nginx.conf").read_bytes() == after["nginx.conf"][0]  # type: ignore[index]


def test_a_journal_that_ends_in_the_middle_is_read_up_to_there(tree: Path, state: State) -> None:
    change = begin(state, _edits(tree))
    whole = (change.journal.directory / "journal").read_bytes()
    line = encode_record(Kept())
    for cut in range(len(line)):
        assert read_story(whole + line[:cut]).phase == "begun"
    assert read_story(whole + line).phase == "kept"
    for place in range(len(line) - 1):
        broken = bytearray(line)
        broken[place] ^= 1
        assert read_story(whole + bytes(broken)).phase == "begun"
    (change.journal.directory / "journal").write_bytes(whole + line[:9])
    change.journal.append(Swapping())
    assert change.journal.read().phase == "swapping"
    assert (change.journal.directory / "journal").read_bytes() == whole + encode_record(Swapping())


def test_the_lock_names_its_holder(state: State) -> None:
    state.prepare()
    with (
        state.locked(),
        pytest.raises(RefusedError, match=f"process {os.getpid()}"),
        state.locked(),
    ):
        pass


def test_a_full_disk_keeps_nobody_from_the_lock(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.prepare()

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(calls, "write", full)
    with state.locked(), pytest.raises(RefusedError, match="is at work"), state.locked():
        pass


def test_hashes_are_of_whole_files(tree: Path) -> None:
    big = tree / "big"
    big.write_bytes(bytes(3_000_001))
    with swap.opened_directory(str(big)) as directory:
        found = swap.read_found(directory, "big")
    assert found is not None
    assert found.sha256 == sha256(bytes(3_000_001))


def test_a_write_in_the_very_moment_of_an_exchange_survives(tmp_path: Path) -> None:
    """Between the last look at a file and the call; and the process may die right behind it."""
    for number, (name, dies) in enumerate(itertools.product(NAMES, (False, True))):
        place = tmp_path / str(number)
        _write_in_the_moment_of_an_exchange(make_tree(place), State(place / "state"), name, dies)


def _write_in_the_moment_of_an_exchange(tree: Path, state: State, name: str, dies: bool) -> None:
    change = begin(state, _edits(tree))
    _apply(change, keeps=False)
    after = snapshot(tree)
    place = "rename_new" if name.endswith("tuned.conf") else "exchange"
    real = getattr(calls, place)

    def late(directory: int, one: str, other: str) -> None:
        if (tree / name).name in (one, other):
            calls_made.append(other)
            if len(calls_made) == 1:
                _replaced(tree / name, b"theirs\n")
        real(directory, one, other)
        if dies and calls_made:
            raise KeyboardInterrupt

    calls_made: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, place, late)
        with pytest.raises(KeyboardInterrupt if dies else ForeignError):
            put_back(change.entries, change.journal.original)
    if dies:
        with pytest.raises(ForeignError):
            put_back(change.entries, change.journal.original)
    assert (tree / name).read_bytes() == b"theirs\n", (name, dies)
    if not dies:
        others = {path: look for path, look in snapshot(tree).items() if path != name}
        kept = {path: look for path, look in after.items() if path in others}
        assert {p: v for p, v in others.items() if not Path(p).name.startswith(".")} == {
            p: v for p, v in kept.items() if not Path(p).name.startswith(".")
        }


def test_the_state_directory_of_others_is_not_believed_and_keeps_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    State(place).prepare()
    assert place.stat().st_mode & 0o777 == 0o755
    assert (place / "changes").stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    with pytest.raises(RefusedError, match="not trusted"):
        State(place).prepare()
