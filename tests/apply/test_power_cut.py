"""The power goes behind any call of a change: the next start ends it, old or new, no mixture."""

from collections.abc import Callable
from pathlib import Path

import pytest
from change_files import Change, begin, snapshot
from power_cut import Recorder
from tiers import REPEAT, dice, draws

from nginx_tune.change.apply import undo
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.model_journal import Kept, Swapping
from nginx_tune.change.apply.swap import clear, swap_in
from nginx_tune.errors import NginxTuneError
from nginx_tune.host.live import LiveHost

_VARIANTS = draws(1, 8)
"""Drawn states of the disk behind each call, beside the two extremes."""


def _edits(tree: Path) -> dict[Path, bytes]:
    return {
        tree / "nginx.conf": b"worker_processes 4;\nevents {}\nhttp { include conf.d/*; }\n",
        tree / "conf.d" / "site.conf": b"server { listen 80 backlog=4096; }\n",
        tree / "conf.d" / "tuned.conf": b"sendfile on;\n",
    }


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    tree = tmp_path / "disk" / "etc"
    (tree / "conf.d").mkdir(parents=True)
    (tree / "nginx.conf").write_bytes(b"events {}\nhttp { include conf.d/*; }\n")
    (tree / "conf.d" / "site.conf").write_bytes(b"server { listen 80; }\n")
    (tree / "conf.d" / "site.conf").chmod(0o640)
    return tmp_path / "disk"


def _apply(state: State, tree: Path, *, keeps: bool) -> Change:
    change = begin(state, _edits(tree))
    change.stage()
    change.journal.append(Swapping())
    swap_in(change.entries)
    if keeps:
        change.journal.append(Kept())
        clear(change.entries)
    return change


def _cut_everywhere(
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
    forgets: Callable[[Path], bool] = lambda _: False,
) -> set[str]:
    """How the changes ended; fails where it is a mixture."""
    tree, state = disk / "etc", State(disk / "lib" / "state")
    old = snapshot(tree)
    recorder = Recorder(disk, forgets)
    with recorder.recording():
        change = _apply(state, tree, keeps=ends.startswith("kept"))
        new = snapshot(tree)
        swapped = len(recorder.calls)
        if ends.endswith("taken back"):
            undo.undo(LiveHost(), change.journal, "tried")
    draw = dice("what a disk holds")
    monkeypatch.setattr(undo, "boot_id", lambda: "the next start")
    ended: set[str] = set()
    # Up to the swap every change is the same.
    for at in range(0 if ends.startswith("kept") else swapped, len(recorder.calls) + 1):
        for held in recorder.cuts(at, draw, _VARIANTS):
            recorder.restore(held)
            undo.recover_all(LiveHost(), state)
            where = f"behind call {at} ({recorder.calls[at - 1] if at else 'none'}), {REPEAT}"
            told = {one.read().phase for one in state.all()} - {"empty"}
            assert told <= {"kept", "undone"}, where
            now = snapshot(tree)
            assert now == (new if told == {"kept"} else old), where
            ended |= told
    return ended


@pytest.mark.long
@pytest.mark.parametrize(
    "ends",
    [
        "taken back",
        "kept, then taken back",
        pytest.param("kept", marks=pytest.mark.thorough),  # the beginning of the one before
    ],
)
def test_behind_every_call_the_next_start_ends_it(
    disk: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    ended = _cut_everywhere(disk, monkeypatch, ends)
    assert ended == ({"kept", "undone"} if ends.startswith("kept") else {"undone"})


@pytest.mark.long
@pytest.mark.parametrize(
    "forgets",
    [
        pytest.param(Path.is_file, id="of the bytes"),
        pytest.param(
            lambda path: path.name == "state", id="of the journals", marks=pytest.mark.thorough
        ),
        pytest.param(
            lambda path: path.name in ("etc", "conf.d"),
            id="of the tree",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_flush_that_is_left_out_is_found(
    disk: Path, monkeypatch: pytest.MonkeyPatch, forgets: Callable[[Path], bool]
) -> None:
    """Otherwise the replay would prove nothing."""
    with pytest.raises((AssertionError, NginxTuneError)):
        _cut_everywhere(disk, monkeypatch, "kept", forgets)
