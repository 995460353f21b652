"""Options of ``listen`` that were planned, on a real nginx: it starts, and every address answers.

Whether it starts ``nginx -t`` does not say: there an address that is in use is no fault.
"""

import http.client
from pathlib import Path

import pytest
from free_ports import free_port
from real_nginx import check
from rows import each_row
from started import serving
from test_plan_changes import contents, write

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.documents.decisions import Decision, Decisions, Setting

CONF = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; user root; worker_processes 2;
events {{ worker_connections 64; }}
http {{
    access_log off;
    server {{ {listens} return 204; }}
}}
"""


def with_options(folder: Path, text: str, *options: str) -> str:
    """The configuration with options of ``listen`` that were decided."""
    tree = write(folder, {"nginx.conf": text})
    made = [
        Decision(
            id="reuseport" if option == "reuseport" else "backlog",
            verdict="set",
            summary="s",
            settings=[Setting(context="server", directive="listen", args=[option])],
        )
        for option in options
    ]
    held = as_changes(Decisions(kind="static", decisions=made), tree)
    changes = plan_changes(held, tree, lambda _: set(), annotates=False)
    return contents(changes).get(tree.path, text.encode()).decode()


def status(address: str, port: int) -> int:
    connection = http.client.HTTPConnection(address, port, timeout=20)
    connection.request("GET", "/")
    found = connection.getresponse().status
    connection.close()
    return found


@pytest.mark.needs("nginx", "root")
@each_row("options", [["backlog=700"], ["reuseport"], ["backlog=700", "reuseport"]])
@each_row(
    ("listens", "given", "asked"),
    [
        ("listen *:{port}; listen 127.0.0.1:{port};", 1, ["127.0.0.1", "127.0.0.2"]),
        ("listen localhost:{port}; listen {port};", 1, ["127.0.0.1", "127.0.0.2"]),
        ("listen {port}; listen [::]:{port}; listen 127.0.0.2:{port};", 2, ["127.0.0.2", "::1"]),
        ("listen {port}-{next}; listen 127.0.0.1:{port};", 1, ["127.0.0.1", "127.0.0.2"]),
        ("listen 127.0.0.1:{port}; listen 127.0.0.2:{port};", 2, ["127.0.0.1", "127.0.0.2"]),
        ("listen *:{port}; listen [::1]:{port};", 2, ["127.0.0.1", "::1"]),
        (
            "listen {port} reuseport; listen 127.0.0.1:{port} reuseport;", 2,
            ["127.0.0.1", "127.0.0.2"],
        ),
        (
            "listen [::]:{port} ipv6only=off reuseport; listen 127.0.0.1:{port} reuseport;", 2,
            ["127.0.0.1", "127.0.0.2", "::1"],
        ),
    ],
)  # fmt: skip
def test_nginx_starts_with_a_planned_option_beside_a_wildcard(
    tmp_path: Path, listens: str, given: int, asked: list[str], options: list[str]
) -> None:
    port = free_port(neighbours=2)
    text = CONF.format(folder=tmp_path, listens=listens.format(port=port, next=port + 1))
    new = with_options(tmp_path, text, *options)
    conf = tmp_path / "nginx.conf"
    conf.write_text(new, encoding="utf-8")
    assert all(new.count(option) == given for option in options), new
    assert check(str(conf)).returncode == 0
    with serving(["nginx", "-c", str(conf)], port):
        assert [status(one, port) for one in asked] == [204] * len(asked)
