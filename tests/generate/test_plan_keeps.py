"""What somebody wrote for a reason stays: headers, WebSockets, larger numbers, options of logs."""

import re
import subprocess
from pathlib import Path

import pytest
from rows import each_row
from test_plan_changes import contents, decided, facts_of, planned, read, write

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import ConfTree

HOST = "raid10-4hdd"
CONF = """\
events {{ worker_connections {connections}; }}
http {{
    map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
    map $status $loggable {{ ~^2 0; default 1; }}
    log_format short '$remote_addr';
    access_log /var/log/nginx/access.log short if=$loggable;
    upstream app {{
        least_conn;
        server 10.0.0.1:9000;  # the first
    }}
    upstream kept {{ server 10.0.0.1:9001; keepalive 300; }}
    server {{
        listen 127.0.0.1:18974 backlog=65535;
        proxy_set_header Host $host;
        proxy_set_header X-Real-IP $remote_addr;  # who asks
        {locations}
    }}
    server {{
        listen 127.0.0.1:18975;
        location / {{ proxy_set_header X-Own 1; proxy_pass http://app; }}
        location /included {{ include {folder}/params; proxy_pass http://app; }}
    }}
}}
"""
PLAIN = "location / { proxy_pass http://app; }"
OF_THEIR_OWN = [
    "location /map { proxy_pass http://app; proxy_set_header Connection $connection_upgrade; }",
    'location /ws { proxy_set_header Connection "upgrade"; proxy_pass http://app; }',
    "location /close { proxy_set_header Connection close; proxy_pass http://app; }",
    "location /old { proxy_http_version 1.0; proxy_pass http://app; }",
]


def conf(folder: Path, *locations: str, connections: int = 1024) -> ConfTree:
    text = CONF.format(folder=folder, locations="\n".join(locations), connections=connections)
    params = "proxy_set_header Host $proxy_host;\n"
    return write(folder, {"params": params, "nginx.conf": text})


def new_text(tree: ConfTree, host: str = HOST) -> str:
    return contents(planned(tree, facts_of(host), "proxy"))[tree.path].decode()


@each_row("location", OF_THEIR_OWN)
def test_a_location_that_says_how_it_connects_is_left_alone(tmp_path: Path, location: str) -> None:
    tree = conf(tmp_path, PLAIN, location)
    assert location in new_text(tree)
    held = as_changes(decided(tree, facts_of(HOST), "proxy"), tree)
    [kept] = [one for one in held.decisions if one.id == "upstream-keepalive"]
    assert any("stays, so that location has no keepalive" in risk for risk in kept.risks)


def headers(tree: ConfTree) -> dict[str, set[str]]:
    """What each place sends upstreams, by its name."""
    return {str(one): {str(line) for line in one.effective_all("proxy_set_header")}
            for one in scopes(tree)}  # fmt: skip


def test_no_place_loses_a_header_that_it_inherits(tmp_path: Path) -> None:
    tree = conf(tmp_path, PLAIN, *OF_THEIR_OWN)
    new = read(Path(tree.path), contents(planned(tree, facts_of(HOST), "proxy")))
    before, after = headers(tree), headers(new)
    assert all(before[place] <= after[place] for place in before)
    passing = [place for place in after if place.endswith(("location /", "location /included"))]
    assert passing
    assert all("proxy_set_header Connection" in " ".join(after[place]) for place in passing)


@each_row("host", ["raid10-4hdd", "kvm-guest", "container-v2"])
def test_no_number_is_made_smaller(tmp_path: Path, host: str) -> None:
    tree = conf(tmp_path, PLAIN, connections=32768)
    text = new_text(tree, host)
    assert "worker_connections 32768;" in text
    assert "keepalive 300;" in text
    assert "backlog=65535" in text
    limit = re.search(r"worker_rlimit_nofile (\d+);", text)
    if limit is not None:
        assert int(limit[1]) >= 2 * 32768


def test_a_limit_that_cannot_be_had_is_left_out_and_said(tmp_path: Path) -> None:
    tree = conf(tmp_path, PLAIN, connections=900_000)
    held = as_changes(decided(tree, facts_of(HOST), "proxy"), tree)
    [limits] = [one for one in held.decisions if one.id == "file-limits"]
    assert not limits.settings
    assert any("worker_rlimit_nofile is left out" in risk for risk in limits.risks)


@each_row(
    ("line", "new"),
    [
        ("short if=$loggable", "short if=$loggable buffer=64k flush=1s"),
        ("short buffer=8k if=$loggable", "short buffer=8k if=$loggable flush=1s"),
        ("short gzip buffer=1m flush=5m", None),
    ],
)
def test_a_log_keeps_what_else_it_says(tmp_path: Path, line: str, new: str | None) -> None:
    tree = conf(tmp_path, PLAIN)
    text = Path(tree.path).read_text().replace("short if=$loggable", line)
    text = new_text(write(tmp_path, {"nginx.conf": text}))
    assert f"access_log /var/log/nginx/access.log {new or line};" in text


def test_a_log_with_options_and_no_format_is_said(tmp_path: Path) -> None:
    tree = conf(tmp_path, PLAIN)
    text = Path(tree.path).read_text().replace("short if=$loggable", "if=$loggable")
    tree = write(tmp_path, {"nginx.conf": text})
    changes = planned(tree, facts_of(HOST), "proxy")
    [refusal] = [one for one in changes.refusals if one.decision == "access-log"]
    assert "no format" in refusal.reason
    assert "access.log if=$loggable;" in contents(changes)[tree.path].decode()


@pytest.mark.needs("nginx", "root")
def test_nginx_keeps_connections_and_the_method(tmp_path: Path) -> None:
    """keepalive before least_conn would be taken back by it, with a warning."""
    tree = conf(tmp_path, PLAIN, *OF_THEIR_OWN[1:])
    text = new_text(tree).replace("/var/log/nginx/access.log", f"{tmp_path}/access.log")
    new = tmp_path / "new.conf"
    new.write_text(f"pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n{text}")
    run = subprocess.run(
        ["/usr/sbin/nginx", "-t", "-c", new], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "redefined" not in run.stderr
    assert "server 10.0.0.1:9000;  # the first\n        keepalive" in text


SHARED = """\
events {}
http {
    access_log LOG/a.log;
    server { listen 127.0.0.1:18974; access_log LOG/a.log combined buffer=4k; root /srv; }
    server { listen 127.0.0.1:18975; access_log LOG/../LOG/a.log combined; root /srv; }
}
"""


@each_row("log", ["/logs", "logs"])
def test_a_file_that_one_line_buffers_gets_no_second_size(tmp_path: Path, log: str) -> None:
    """nginx would not start: "already defined with conflicting parameters"."""
    text = SHARED.replace("LOG/../", "").replace("LOG", log)
    tree = write(tmp_path, {"nginx.conf": text})
    assert re.findall("access_log (.+?);", new_text(tree)) == [
        f"{log}/a.log",
        f"{log}/a.log combined buffer=4k flush=1s",
        f"{log}/a.log combined",
    ]


@pytest.mark.needs("nginx")
def test_nginx_takes_logs_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    text = SHARED.replace("LOG/../LOG", "logs").replace("LOG", f"{tmp_path}/logs")
    tree = write(tmp_path, {"nginx.conf": f"pid p; error_log e; {text}"})
    Path(tree.path).write_text(new_text(tree))
    command = ["/usr/sbin/nginx", "-t", "-q", "-p", str(tmp_path), "-c", tree.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "emerg" not in done.stderr
