"""What a change does to the files: which bytes are laid where."""

from __future__ import annotations

from pathlib import Path

from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.experiment.rehearse.change import as_read, change_between, without_bpf
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles


def tree_of(directory: Path, **files: str) -> ConfTree:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        path = directory / name.replace("_", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return read_tree(str(directory / "main"), ConfigurationFiles(LiveHost()), prefix=None)


def test_another_file_beside_it_is_laid_over_the_main_one(tmp_path: Path) -> None:
    old = tree_of(tmp_path, main="include d/*; a 1;", d_x="b 1;")
    (tmp_path / "new").write_text("include d/*; a 2;")
    new = read_tree(str(tmp_path / "new"), ConfigurationFiles(LiveHost()), prefix=None)
    found = change_between(old, new)
    assert found == {str(tmp_path / "main"): b"include d/*; a 2;"}


def test_another_directory_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("s 1;")
    line = f"include d/*; include {shared};"
    old = tree_of(tmp_path / "old", main=line, d_same="a;", d_gone="b;", d_other="c 1;")
    new = tree_of(tmp_path / "new", main=line, d_same="a;", d_made="e;", d_other="c 2;")
    found = change_between(old, new)
    home = tmp_path / "old" / "d"
    assert found == {
        str(home / "gone"): b"", str(home / "made"): b"e;", str(home / "other"): b"c 2;",
    }  # fmt: skip


def test_what_the_sandbox_cannot_have_is_off_before_and_after(tmp_path: Path) -> None:
    """Only that word changes, in whichever file it stands."""
    on, off = "quic_bpf  on; # keys\ninclude d/*;", "quic_bpf  off; # keys\ninclude d/*;"
    main = str(tmp_path / "old" / "main")
    old = tree_of(tmp_path / "old", main=on, d_x="a 1;")
    same = tree_of(tmp_path / "same", main=on, d_x="a 2;")
    without = tree_of(tmp_path / "without", main="include d/*;", d_x="a 1;")
    other = str(tmp_path / "old" / "d" / "x")
    laid = {main: off.encode()}
    assert without_bpf(old, same, change_between(old, same)) == (laid, {**laid, other: b"a 2;"})
    changed = {main: b"include d/*;"}
    assert without_bpf(old, without, change_between(old, without)) == (laid, changed)
    there = str(tmp_path / "without" / "main")
    assert without_bpf(without, old, change_between(without, old)) == ({}, {there: off.encode()})
    assert without_bpf(without, without, {}) == ({}, {})


def test_a_message_about_a_file_that_was_laid_elsewhere_has_the_name_it_was_read_by() -> None:
    def said(path: str, *, read: str) -> str:
        return as_read(f'unknown directive "a in b:1" in {path}:7', laid="/o/main", read=read)

    assert said("/o/main", read="/o/new").endswith(" in /o/new:7")
    assert said("/o/d/x", read="/o/new").endswith(" in /o/d/x:7")
    assert said("/o/d/x", read="/n/new").endswith(" in /n/d/x:7")
    assert said("/etc/x", read="/n/new").endswith(" in /etc/x:7")
    assert as_read("no events", laid="/o/main", read="/n/new") == "no events"
