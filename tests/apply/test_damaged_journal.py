"""A journal that is damaged is told; one whose last record is not whole ends before it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from change_files import Change, begin
from command_line import RunCli
from fuzzing import changed, fuzzed
from hypothesis import given

from nginx_tune.change.apply.hindrances import check_unfinished
from nginx_tune.change.apply.history import read_history
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.model_journal import (
    Kept,
    RefusedError,
    StuckError,
    Swapping,
    encode_record,
    read_story,
)
from nginx_tune.change.apply.swap import clear, swap_in
from nginx_tune.change.apply.undo import recover_all, roll_back
from nginx_tune.host.live import LiveHost


def _kept(state: State, path: Path, content: bytes) -> Change:
    change = begin(state, {path: content})
    change.journal.append(Swapping())
    change.stage()
    swap_in(change.entries)
    change.journal.append(Kept())
    clear(change.entries)
    return change


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


RECORDS = b"".join(map(encode_record, (Swapping(), Kept())))


@fuzzed
@given(changed([RECORDS]))
def test_a_changed_journal_is_read_to_its_damage(data: bytes) -> None:
    story = read_story(data)
    assert story.whole_bytes <= len(data)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "garbage": lambda _: b"\x00\xff\n garbage",
    "half of the first record": lambda data: data[: data.index(b"\n") // 2],
    "first byte": lambda data: _flipped(data, 0),
    "second record": lambda data: _flipped(data, data.index(b"\n") + 1),
    "an end of line": lambda data: _flipped(data, data.index(b"\n")),
}


def test_a_damaged_journal_is_told_and_nothing_guessed(tmp_path: Path, run_cli: RunCli) -> None:
    path = tmp_path / "nginx.conf"
    path.write_bytes(b"# old\n")
    state = State(tmp_path / "state")
    first = _kept(state, path, b"# first\n")
    change = _kept(state, path, b"# new\n")
    journal = change.journal.directory / "journal"
    whole = journal.read_bytes()
    for how, damage in DAMAGE.items():
        journal.write_bytes(damaged := damage(whole))
        told = run_cli("history", "--state-dir", state.path)
        assert (told.returncode, f"{change.journal.id}  DAMAGED" in told.stdout) == (0, True), how
        assert [one.state for one in read_history(state).changes] == ["damaged", "kept"], how
        said = run_cli("rollback", "--recover", "--state-dir", state.path)
        assert (said.returncode, f"{journal}: damaged" in said.stderr) == (5, True), how
        for name in (None, change.journal.id):  # without a name not the change before it either
            with pytest.raises(StuckError, match="damaged"):
                roll_back(LiveHost(), state, name)
        with pytest.raises(RefusedError, match="is damaged"):
            check_unfinished(state)
        assert (path.read_bytes(), journal.read_bytes()) == (b"# new\n", damaged), how
        assert first.journal.read().phase == "kept"


def test_a_last_record_that_is_not_whole_was_never_acted_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nginx_tune.change.apply.undo.lives", lambda _: False)
    path = tmp_path / "nginx.conf"
    for cut in (1, 5):
        path.write_bytes(b"# old\n")
        state = State(tmp_path / f"state-{cut}")
        change = _kept(state, path, b"# new\n")
        journal = change.journal.directory / "journal"
        journal.write_bytes(journal.read_bytes()[:-cut])
        assert [one.journal.id for one in recover_all(LiveHost(), state)] == [change.journal.id]
        assert path.read_bytes() == b"# old\n", cut


def test_a_change_of_which_nothing_was_begun_is_no_damage(tmp_path: Path, run_cli: RunCli) -> None:
    state = State(tmp_path / "state")
    state.prepare()
    directory = state.new().directory
    (directory / "original-0").write_bytes(b"# old\n")
    (directory / "journal.part").write_bytes(b"12345678 {")
    said = run_cli("history", "--state-dir", state.path, "-f", "json")
    assert json.loads(said.stdout)["changes"] == []
    assert run_cli("rollback", "--recover", "--state-dir", state.path).returncode == 0
    check_unfinished(state)
