"""The output of ``nginx -T`` read as the files it came from."""

import subprocess
from pathlib import Path

import pytest
from conf_readers import Disk
from rows import each_row

from nginx_tune.conf.dumps import parse_dump
from nginx_tune.conf.tree import read_tree
from nginx_tune.errors import UsageError


def _dump(files: dict[str, str]) -> bytes:
    return "".join(
        f"# configuration file {name}:\n{text}\n" for name, text in files.items()
    ).encode()


def test_files_come_back_with_their_places() -> None:
    files = {
        "/etc/nginx/nginx.conf": "events {}\nhttp { include conf.d/*.conf; }",
        "/etc/nginx/conf.d/b.conf": "server {\n  listen 80;\n}\n",
        "/etc/nginx/conf.d/a.conf": "\n\n  gzip on;\n",
    }
    dump = parse_dump(b"nginx: syntax is ok\n" + _dump(files))
    assert {name: data.decode() for name, data in dump.files.items()} == files
    tree = read_tree(dump.main, dump)
    assert tree.complete, tree.unparsed
    assert [(d.name, d.file, d.line, d.column) for d in tree.main.walk()] == [
        ("events", "/etc/nginx/nginx.conf", 1, 1),
        ("http", "/etc/nginx/nginx.conf", 2, 1),
        ("gzip", "/etc/nginx/conf.d/a.conf", 3, 3),
        ("server", "/etc/nginx/conf.d/b.conf", 1, 1),
        ("listen", "/etc/nginx/conf.d/b.conf", 2, 3),
    ]


def test_what_the_dump_lacks_is_listed() -> None:
    dump = parse_dump(_dump({"/c": "include /gone.conf; include /gone/*;"}))
    tree = read_tree(dump.main, dump)
    assert [fault.reason for fault in tree.unparsed] == [
        "include /gone.conf: cannot read: not in the dump"
    ]


PASTED = "# configuration file {}:\nserver {{ listen 80; }}\nserver {{ listen 81; }}\n"


@each_row(
    "files",
    [
        {"/n.conf": "events {} http { include /d/*; }", "/d/a": PASTED.format("/d/a")},
        {"/n.conf": "events {} http { include /d/*; }", "/d/a": PASTED.format("/n.conf")},
        {"/n.conf": "events {}\n# configuration file /gone:\nhttp { include /d/*; }",
         "/d/a": PASTED.format("/etc/x"), "/d/b": "gzip on;\n" + PASTED.format("/etc/y")},
        {"/n.conf": "events {}\nhttp {\n# configuration file /gone:\ninclude /d/*; }",
         "/d/a": "server {\n# configuration file /x:\nlisten 80; } server { listen 81; }"},
    ],
)  # fmt: skip
def test_a_line_that_looks_like_a_head_stays_in_its_file(files: dict[str, str]) -> None:
    dump = parse_dump(_dump(files))
    assert {name: data.decode() for name, data in dump.files.items()} == files
    tree = read_tree(dump.main, dump)
    assert tree.complete
    assert [str(line) for line in tree.main.walk() if line.name == "listen"][:2] == [
        "listen 80", "listen 81"
    ]  # fmt: skip


def test_a_file_that_an_include_spells_otherwise_is_one_by_itself() -> None:
    files = {"/e/n.conf": "events {} http { include ../e/d//../d/*; }", "/e/d/a": "gzip on;"}
    printed = _dump({name.replace("/e/d/", "/e/../e/d//../d/"): files[name] for name in files})
    dump = parse_dump(printed)
    assert {name: data.decode() for name, data in dump.files.items()} == files


def test_a_file_that_is_printed_twice_or_that_no_include_is_seen_of_is_one_by_itself() -> None:
    files = {"/n.conf": "events {}", "/b": "} # not of the file before it"}
    assert set(parse_dump(_dump(files)).files) == {*files}
    twice = _dump({"/n.conf": "http { include /d/*; include /d/*; }", "/d/a": "gzip on;"})
    dump = parse_dump(twice + _dump({"/d/a": "gzip on;", "/d/b": "gunzip on;"}))
    assert {*dump.files} == {"/n.conf", "/d/a", "/d/b"}
    assert dump.files["/d/a"] == b"gzip on;"


def test_no_dump_is_wrong_usage() -> None:
    for data in (b"", b"events {}", b"\xff\x00"):
        with pytest.raises(UsageError, match="not the output of nginx -T"):
            parse_dump(data)


@pytest.mark.needs("nginx", "root")
def test_a_dump_of_the_real_nginx_is_the_tree_on_disk(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "nginx.conf").write_bytes(
        b"pid %s/pid; error_log %s/e;\r\nevents {}\r\nhttp {\r\n include conf.d/*.conf;\r\n}"
        % (str(tmp_path).encode(), str(tmp_path).encode())
    )
    (tmp_path / "conf.d" / "1.conf").write_bytes(
        b"\xef\xbb\xbf"[:0] + b"# caf\xe9\nsendfile on;\n\n"
    )
    (tmp_path / "conf.d" / "2.conf").write_bytes(b"# empty but for this")
    conf = str(tmp_path / "nginx.conf")
    run = subprocess.run(["/usr/sbin/nginx", "-T", "-c", conf], capture_output=True, check=True)
    dump = parse_dump(run.stdout)
    assert dump.main == conf
    for name, data in dump.files.items():
        assert data == Path(name).read_bytes()
    ours, theirs = read_tree(conf, dump), read_tree(conf, Disk())
    assert ours.files == theirs.files
    assert [(str(d), d.file, d.line, d.column) for d in ours.main.walk()] == [
        (str(d), d.file, d.line, d.column) for d in theirs.main.walk()
    ]
