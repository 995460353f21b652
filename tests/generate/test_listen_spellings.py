"""Options of ``listen`` for sockets that have several spellings, on every nginx of the matrix.

Trees are drawn: what nginx takes it takes with the planned options too, and where it says
that a line is given twice the audit says so.
"""

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
import tiers
from nginx_versions import SERIES, find_nginx, present, versions
from real_nginx import PATH
from rows import each_row
from test_plan_changes import write
from test_serving_siblings import with_options

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.change.generate.nginx_conf import emit_plain
from nginx_tune.conf.listeners import listeners, socket_name
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.errors import UsageError

pytestmark = pytest.mark.needs("nginx", "root", "nginx-1.30")
TREES = tiers.draws(30, 600)
CONF = """\
daemon off; pid {folder}/pid; error_log stderr; user root; worker_processes 2;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {servers}
}}
"""
HOSTS = {
    "*": ["{port}", "*:{port}", "0.0.0.0:{port}", "0:{port}", "...:0{port}", "0{port}"],
    "127.0.0.1": ["127.0.0.1:{port}", "127.1:{port}", "0x7f.1:{port}", "127.0.0.01:0{port}"],
    "127.0.0.2": ["127.0.0.2:{port}", "127.2:{port}", "2130706434:{port}"],
    "::": ["[::]:{port}", "[::0]:{port}", "[0:0:0:0:0:0:0:0]:0{port}"],
    "::1": ["[::1]:{port}", "[0:0:0:0:0:0:0:1]:{port}", "[::0.0.0.1]:{port}"],
    "name": ["localhost:{port}", "LocalHost:{port}"],
    "unix": ["unix:{folder}/a", "unix:{folder}//a", "UNIX:{folder}/a"],
}
"""Spellings of a socket each."""
OPTIONS = ["rcvbuf=64k", "backlog=300", "reuseport", "deferred", "bind", "so_keepalive=on"]
TWICE = ("duplicate listen options", "a duplicate listen ", "a duplicate default server")
RULES = {"cf-listen-twice", "ls-reuseport-twice"}
KEPT = [
    # Two lines of a socket, of which the second has options already.
    ["10000", "*:10000 rcvbuf=64k"],
    ["10000-10003", "10001"],
    ["10000-10003", "10001 rcvbuf=64k"],
    ["10000-10003", "10002-10005"],
    ["localhost:10000", "127.0.0.1:10000"],
    ["localhost:10000", "localhost:10000 rcvbuf=64k", "10000"],
    ["[::0]:10000", "[::]:10000"],
    ["127.1:10000", "127.0.0.1:10000"],
    ["010000", "10000"],
    ["127.0.0.1:10000-10003", "10001"],
]
"""Servers of one ``listen`` each whose planned options nginx once refused."""


def said(program: str, folder: Path, text: str) -> str:
    """The fault that ``nginx -t`` finds; empty for none."""
    conf = folder / "tested.conf"
    conf.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [program, "-t", "-p", str(folder), "-c", str(conf)],
        capture_output=True, text=True, check=False, timeout=60, env=PATH,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr


def of_servers(folder: Path, servers: list[list[str]]) -> str:
    blocks = [
        f"server {{ {' '.join(f'listen {one};' for one in listens)} server_name s{number}; "
        "return 204; }"
        for number, listens in enumerate(servers)
    ]
    return CONF.format(folder=folder, servers="\n    ".join(blocks))


def draw(dice: Random, folder: Path) -> list[list[str]]:
    """Servers with their lines; few ports and addresses, so that they meet."""
    hosts = dice.sample(list(HOSTS), dice.randint(1, 4))
    given: set[str] = set()
    servers = []
    for _ in range(dice.randint(1, 5)):
        lines = []
        for host in dice.sample(hosts, dice.randint(1, min(2, len(hosts)))):
            port = dice.randint(10000, 10003)
            ports = f"{port}-{port + dice.randint(0, 3)}" if dice.random() < 0.25 else f"{port}"
            line = dice.choice(HOSTS[host]).format(port=ports, folder=folder)
            name = str(socket_name(line))
            # Mostly one line of a socket has options, else few trees would be taken.
            if dice.random() < 0.2 and (name not in given or dice.random() < 0.1):
                given.add(name)
                line += f" {dice.choice(OPTIONS)}"
            lines.append(line)
        servers.append(lines)
    return servers


@each_row("listens", KEPT, ids=" ".join)
def test_nginx_takes_what_once_failed(listens: list[str], tmp_path: Path) -> None:
    text = of_servers(tmp_path, [[one] for one in listens])
    for program in programs():
        assert said(program, tmp_path, text) == ""
        for options in (["backlog=700"], ["reuseport"], ["backlog=700", "reuseport"]):
            new = with_options(tmp_path, text, *options)
            assert said(program, tmp_path, new) == "", new


def programs() -> list[str]:
    """Those of the matrix that are here; the oldest has ranges of ports."""
    return list(present().values())


@versions(*SERIES)
def test_planned_options_are_taken_wherever_the_tree_is(nginx: str, tmp_path: Path) -> None:
    dice = tiers.dice(f"trees for {nginx}")
    program = find_nginx(nginx).program
    taken = changed = 0
    for number in range(TREES):
        text = of_servers(tmp_path, draw(dice, tmp_path))
        note = f"{tiers.REPEAT}, nginx {nginx}, tree {number}\n{text}"
        fault = said(program, tmp_path, text)
        check_audit(tmp_path, text, fault, note)
        if fault:
            continue
        taken += 1
        options = dice.choice([["backlog=700"], ["reuseport"], ["backlog=700", "reuseport"]])
        new = with_options(tmp_path, text, *options)
        changed += new != text
        assert said(program, tmp_path, new) == "", f"{note}\n{options}\n{new}"
        assert with_options(tmp_path, new, *options) == new, f"{note}: planned again\n{new}"
        for one in listeners(write(tmp_path, {"nginx.conf": new})):
            has = all(any(option in line.args for line in one.lines) for option in options)
            is_left = one.is_unix or not one.has_socket or one.maybe is not None
            assert has or is_left or "-" in text, f"{note}: {one.address}\n{new}"
    assert taken >= TREES // 4, f"{tiers.REPEAT}: {taken} of {TREES}"
    assert changed >= TREES // 6, f"{tiers.REPEAT}: {changed} of {TREES}"


@pytest.fixture
def nginx(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check_audit(folder: Path, text: str, fault: str, note: str) -> None:
    """Told where nginx refuses a line, and nowhere else; what a name stands for is not known."""
    tree = write(folder, {"nginx.conf": text})
    found = [one for one in audit(tree, Facts(), ALL).findings if one.rule in RULES]
    if not any(word in fault for word in TWICE):
        assert not found, f"{note}\n{found}"
    elif "localhost" not in text.lower():
        assert found, f"{note}\n{fault}"


def test_sockets_are_told_apart_as_nginx_does(tmp_path: Path) -> None:
    """Any two spellings: options of both are refused for one socket alone."""
    dice = tiers.dice("pairs of spellings")
    spellings = [
        (host, one.format(port="10000", folder=tmp_path))
        for host, written in HOSTS.items()
        for one in written
    ]
    pairs = dice.sample(list(combinations(spellings, 2)), tiers.draws(40, 200))
    pairs += [pair for pair in combinations(spellings, 2) if pair[0][0] == pair[1][0]]
    for (_, one), (_, other) in pairs:
        text = of_servers(tmp_path, [[f"{one} backlog=600"], [f"{other} backlog=600"]])
        fault = said("nginx", tmp_path, text)
        is_same = "duplicate listen options" in fault
        names = socket_name(one), socket_name(other)
        if "name" not in {name.family for name in names}:
            assert is_same == (names[0] == names[1]), f"{one} {other}: {fault}"
        elif is_same:
            assert names[0].meets(names[1]), f"{one} {other}"


@contextlib.contextmanager
def started(folder: Path, text: str) -> Iterator[bool]:
    """Whether nginx starts: it makes its pid file once it has bound every socket."""
    conf, pid = folder / "started.conf", folder / "pid"
    conf.write_text(text, encoding="utf-8")
    pid.unlink(missing_ok=True)
    process = subprocess.Popen(
        ["nginx", "-p", str(folder), "-c", str(conf)], stderr=subprocess.DEVNULL, env=PATH
    )
    try:
        while process.poll() is None and not pid.exists():
            time.sleep(0.01)
        yield process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_nginx_starts_with_planned_options_where_it_did(tmp_path: Path, free_port: int) -> None:
    """A socket that is in use ``nginx -t`` does not see."""
    dice = tiers.dice("started trees")
    starts = 0
    for number in range(tiers.draws(8, 100)):
        drawn = of_servers(tmp_path, draw(dice, tmp_path))
        text = drawn
        for port in range(10000, 10010):  # others may test here too
            text = text.replace(f"{port}", f"{free_port + port - 10000}")
        if said("nginx", tmp_path, text):
            continue
        with started(tmp_path, text) as starts_as_it_is:
            pass
        if not starts_as_it_is:
            continue
        starts += 1
        new = with_options(tmp_path, text, "backlog=700", "reuseport")
        with started(tmp_path, new) as starts_still:
            assert starts_still, f"{tiers.REPEAT}, tree {number}\n{text}\n{new}"
    assert starts, f"{tiers.REPEAT}"


def test_generated_options_stand_once_for_a_socket(tmp_path: Path) -> None:
    """A site's listens in any spelling: refused as given twice, or taken as they are without."""
    dice = tiers.dice("listens of sites")
    written = 0
    for number in range(tiers.draws(20, 400)):
        hosts = dice.choices([one for one in HOSTS if one != "unix"], k=dice.randint(2, 4))
        listens = [dice.choice(HOSTS[host]) for host in hosts]
        listens = [one.format(port=dice.randint(10000, 10001)) for one in listens]
        parts = {"listen": listens, "roots": [f"{tmp_path}"], "access_log": "off"}
        site = Site(**parts, error_log="stderr", user="root")  # type: ignore[arg-type]
        note = f"{tiers.REPEAT}, site {number}: {listens}"
        try:
            plain = emit_plain(site)
        except UsageError as error:
            assert re.search("is given twice|is no address|is not an address", error.message), note  # noqa: PT017  # of some
            continue
        fault = said("nginx", tmp_path, in_folder(plain, tmp_path))
        assert not fault or "localhost" in note.lower(), f"{note}\n{fault}"
        forced = [
            Setting(context="server", directive="listen", args=[one])
            for one in ("backlog=700", "reuseport")
        ]
        text = emit_plain(site, forced=forced)
        written += text != plain
        after = said("nginx", tmp_path, in_folder(text, tmp_path))
        assert bool(after) == bool(fault), f"{note}\n{after}\n{text}"
        assert "duplicate listen options" not in after, f"{note}\n{after}\n{text}"
    assert written, f"{tiers.REPEAT}"


def in_folder(text: str, folder: Path) -> str:
    """The configuration with nothing outside of a folder."""
    paths = " ".join(
        f"{one}_temp_path {folder}/{one};"
        for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"pid {folder}/pid;\n" + text.replace("http {", f"http {{ {paths}", 1)
