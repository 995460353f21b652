"""The grammar of values against the programs that it was read from, and against nginx -t."""

import subprocess
import sys
from pathlib import Path

import pytest
from needs import lacks
from rows import each_row
from tiers import REPEAT, dice, draws

from nginx_tune.conf.known_variables import is_known_variable
from nginx_tune.conf.own_values import own_fault_of
from nginx_tune.conf.values import grammars_of, is_time, versions_read

ROOT = Path(__file__).resolve().parent.parent.parent
NGINX = "/usr/sbin/nginx"


def _version() -> str:
    said = subprocess.run([NGINX, "-v"], capture_output=True, text=True, check=True)
    return said.stderr.strip().rpartition("/")[2].split()[0]


@pytest.mark.needs("nginx", "x86-64")
def test_the_tables_are_what_the_installed_nginx_has(tmp_path: Path) -> None:
    version = _version()
    number = tuple(map(int, version.split(".")))
    if number not in versions_read():
        lacks("debian-build", f"nginx {version} is not one of those the table was read from")
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/nginx").symlink_to(NGINX)
    tool = [sys.executable, str(ROOT / "tools/read-directives")]

    def read(what: str) -> list[str]:
        run = subprocess.run(
            [*tool, what, f"{version}={tmp_path}"], capture_output=True, text=True, check=True
        )
        return [line for line in run.stdout.splitlines() if not line.startswith("#")]

    rows = read("--values")
    assert len(rows) > 300
    table = (ROOT / "nginx_tune/conf/directive-values.tsv").read_text()
    for row in rows:
        head = row.rpartition("\t")[0]
        (line,) = (line for line in table.splitlines() if line.startswith(head + "\t"))
        assert version in line.rpartition("\t")[2].split(",")
    names = read("--variables")
    assert {"host", "uri", "arg_*", "ssl_protocol", "upstream_addr"} <= set(names)
    assert all(is_known_variable(name.rstrip("*")) for name in names)


def _accepted(conf: str, tmp_path: Path) -> bool:
    path = tmp_path / "nginx.conf"
    path.write_text(conf)
    argv = ["unshare", "--net", NGINX, "-t", "-e", "/dev/null", "-c", str(path)]
    argv += ["-g", f"pid {tmp_path}/pid;"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    return "invalid" not in said


@pytest.mark.needs("nginx", "root")
def test_times_at_random_are_taken_as_nginx_takes_them(tmp_path: Path) -> None:
    draw = dice("times")
    parts = ["1", "30", "0", "y", "M", "w", "d", "h", "m", "s", "ms", " ", "x", "-1", "1.5", "2h"]
    for _ in range(draws(50, 500)):
        text = "".join(draw.choice(parts) for _ in range(draw.randrange(1, 6)))
        for name, in_seconds in (("send_timeout", False), ("open_file_cache_valid", True)):
            said = _accepted(f'events {{}} http {{ {name} "{text}"; }}', tmp_path)
            assert is_time(text, in_seconds=in_seconds) is said, (name, text, REPEAT)


LARGE = [
    (name, f"{digits}{unit}")
    for name in ("proxy_read_timeout", "client_max_body_size", "keepalive_requests")
    for digits in ("9223372036854775807", "9223372036854775808", "0" * 30 + "7", "9" * 23)
    for unit in ("", "k", "m")
    if not unit or name != "keepalive_requests"
] + [("client_max_body_size", "9007199254740992k"), ("client_max_body_size", "9" * 3000)]


@pytest.mark.needs("nginx", "root", "x86-64")
def test_numbers_that_nginx_cannot_hold_are_refused_and_no_others(tmp_path: Path) -> None:
    said = set()
    for name, value in LARGE:
        taken = any(one.takes([value]) for one in grammars_of(name))
        accepted = _accepted(f"events {{}} http {{ {name} {value}; }}", tmp_path)
        assert taken or not accepted, f"{name} {value[:40]}: nginx takes it"
        said.add((taken, accepted))
        if len(value.lstrip("0").rstrip("km")) > 19:
            assert not taken, f"{name} {value[:40]}: nginx refuses it, and nothing is said"
    assert {(True, True), (False, False)} <= said


def test_words_of_an_enumeration_differ_by_version() -> None:
    old, new = sorted(grammars_of("proxy_http_version"), key=lambda one: max(one.versions))
    assert not old.takes(["2"])
    assert new.takes(["2"])
    (level,) = grammars_of("gzip_comp_level")
    assert [text for text in ("0", "1", "9", "10", "x") if level.takes([text])] == ["1", "9"]
    (methods,) = grammars_of("proxy_cache_methods")
    assert methods.takes(["get", "POST"])
    assert not methods.takes(["GET", "PUT"])


def test_of_what_a_template_fills_in_nothing_is_said() -> None:
    (timeout,) = grammars_of("send_timeout")
    assert timeout.takes(["$seconds"])
    assert timeout.takes(["{{"])
    assert not timeout.takes(["later"])
    assert own_fault_of("listen", "stream-server") is None


@each_row(
    ("name", "args"),
    [
        ("allow", ["{{", "ip", "}}"]), ("deny", ["@net@"]), ("expires", ["$time"]),
        ("set", ["${NAME}", "x"]), ("set", ["<%=", "a", "%>"]), ("proxy_redirect", ["<%= a %>"]),
        ("limit_conn_zone", ["$uri", "zone=a:${SIZE}"]),
        ("ssl_session_cache", ["shared:SSL:{{s}}"]),
        ("access_log", ["${LOG}", "main", "buffer=${SIZE}"]), ("fastcgi_pass", ["${FPM}:${PORT}"]),
        ("resolver", ["${NS}"]), ("proxy_bind", ["@IP@"]),
        ("aio", ["$aio"]), ("proxy_cache_valid", ["200", "{{ ttl }}"]), ("keepalive", ["%KEEP%"]),
    ],
)  # fmt: skip
def test_no_form_is_asked_of_what_a_template_fills_in(name: str, args: list[str]) -> None:
    judge = own_fault_of(name, "http")
    assert judge is not None
    assert not judge(args)
