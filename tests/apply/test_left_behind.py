"""What a kill or a disk leaves behind is put right by the next recovery; the order of changes."""

import errno
import os
from pathlib import Path

import pytest
from change_files import begin, snapshot
from tiers import REPEAT, dice, draws

from nginx_tune.change.apply import calls, journal
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.model_journal import Kept, RefusedError, StuckError
from nginx_tune.change.apply.swap import swap_in
from nginx_tune.change.apply.undo import recover_all, roll_back, undo
from nginx_tune.host.live import LiveHost


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "etc"
    path.mkdir()
    for name in ("nginx.conf", "site.conf"):
        (path / name).write_bytes(b"# old\n")
    return path


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


def test_what_lies_beside_a_change_that_has_ended_is_cleared_and_nothing_of_others(
    tree: Path, state: State
) -> None:
    change = begin(state, {tree / "nginx.conf": b"# new\n", tree / "site.conf": b"# new\n"})
    change.stage()
    swap_in(change.entries)
    change.journal.append(Kept())
    beside = [tree / one.beside for one in change.entries]
    beside[0].with_name(beside[0].name + ".part").write_bytes(b"# ne")
    beside[1].write_bytes(b"# theirs\n")
    others = tree / ".nginx.conf.nginx-tune.00000000"
    others.write_bytes(b"# new\n")
    assert recover_all(LiveHost(), state) == []
    assert sorted(tree.glob(".*")) == sorted([beside[1], others])
    assert {path.read_bytes() for path in tree.glob("[!.]*")} == {b"# new\n"}


def test_a_read_only_state_directory_refuses_a_change_and_lets_one_be_taken_back(
    tree: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    state.prepare()
    real = os.open

    def read_only(path: object, flags: int, *more: object, **named: object) -> int:
        if flags & os.O_RDWR and str(path).startswith(str(state.path)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *more, **named)  # type: ignore[call-overload, no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        with pytest.raises(RefusedError, match=r"lock: Read-only file system$"), state.locked():
            pass
    with state.locked():
        change = begin(state, {tree / "nginx.conf": b"# new\n"})
        change.stage()
        swap_in(change.entries)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        roll_back(LiveHost(), state, None)
    assert snapshot(tree) == before


def test_a_read_only_disk_keeps_a_change_that_the_next_start_takes_back(
    tree: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    change = begin(state, {tree / "nginx.conf": b"# new\n"})
    change.stage()
    swap_in(change.entries)

    def read_only(*_arguments: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(calls, "exchange", read_only)
        said = f"Read-only file system; still the new files: {tree / 'nginx.conf'}$"
        with pytest.raises(StuckError, match=said):
            undo(LiveHost(), change.journal, "it failed")
    assert change.journal.read().phase == "stuck"
    monkeypatch.setattr("nginx_tune.change.apply.undo.lives", lambda _: False)
    assert [one.journal.id for one in recover_all(LiveHost(), state)] == [change.journal.id]
    assert snapshot(tree) == before


def test_changes_stand_in_the_order_in_which_they_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many in one second, and with a clock that is set back now and then."""
    draw = dice("a clock that is set back")
    state = State(tmp_path / "state")
    state.prepare()
    hour = 12
    begun = []
    for _ in range(draws(60, 600)):
        hour = min(23, max(0, hour + draw.choice([0, 0, 0, 1, -1])))
        monkeypatch.setattr(journal, "_now", lambda hour=hour: f"20261123T{hour:02}0000Z")
        begun.append(state.new().id)
    assert [one.id for one in state.all()] == begun, REPEAT
