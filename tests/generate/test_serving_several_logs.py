"""Buffers planned for several access logs, on a real nginx: which log waits, and how long."""

import re
import time
import urllib.request
from pathlib import Path

import pytest
from started import serving, until
from test_plan_changes import contents, facts_of, planned, write

pytestmark = pytest.mark.needs("nginx", "root")
CONF = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root;
events {{}}
http {{
    log_format nginx_tune 'tuned $uri'; log_format short '$uri';
    access_log {folder}/a.log; access_log {folder}/b.log short if=$args;
    server {{
        listen 127.0.0.1:{port};
        {server}
        location / {{ return 200 ok; }}
        location /own {{ access_log {folder}/c.log short; access_log {folder}/$host.log short; }}
    }}
}}
"""


def changed(folder: Path, port: int, server: str = "", other: str = "") -> str:
    text = CONF.format(folder=folder, port=port, server=server)
    tree = write(folder, {"other.conf": other, "nginx.conf": text})
    changes = planned(tree, facts_of("raid10-4hdd"), "proxy")
    return contents(changes)[tree.path].decode()


def test_each_log_that_has_a_buffer_comes_a_second_late(tmp_path: Path, free_port: int) -> None:
    text = changed(tmp_path, free_port)
    (tmp_path / "nginx.conf").write_text(
        re.sub("worker_(rlimit_nofile|connections) .*?;", "", text), encoding="utf-8"
    )
    sent: list[float] = []
    logs = {name: tmp_path / f"{name}.log" for name in ("a", "b", "c", "127.0.0.1")}
    with serving(["nginx", "-c", str(tmp_path / "nginx.conf")], free_port):
        for asked in ("x?1", "x", "own"):
            sent.append(time.time())
            url = f"http://127.0.0.1:{free_port}/{asked}"
            try:
                urllib.request.urlopen(url, timeout=10).read()
            except urllib.error.HTTPError:
                assert asked == "own"  # 404, and logged
        until(lambda: all(log.stat().st_size for log in logs.values()))
        found = {name: log.read_text() for name, log in logs.items()}
        written = {name: log.stat().st_mtime for name, log in logs.items()}
    assert "$host.log short;" in text, "its name has a variable, and so it has no buffer"
    for name, first in (("a", sent[0]), ("b", sent[1]), ("c", sent[2])):
        assert written[name] - first > 0.9, "flush=1s"
    assert found["a"].count("\n") == 2
    assert '"GET /x?1 HTTP/1.1" 200' in found["a"], "a log without a format is nginx's combined"
    assert (found["b"], found["c"]) == ("/x\n", "/own\n")


def test_a_log_in_a_file_included_twice_hinders_no_other(tmp_path: Path, free_port: int) -> None:
    server = f"include {tmp_path}/other.conf; location /i {{ include {tmp_path}/other.conf; }}"
    text = changed(tmp_path, free_port, server, f"access_log {tmp_path}/d.log short;")
    # Of http's own logs nothing is left that is written to.
    assert text.count("buffer=64k flush=1s;") == 1
