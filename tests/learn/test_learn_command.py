"""``nginx-tune learn`` on files as they are found."""

import bz2
import gzip
import json
import lzma
import os
import select
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of

pytestmark = pytest.mark.needs("probe")

CONF = f"""
events {{}}
http {{
    log_format full '{FULL}';
    log_format as_json escape=json '{{"t":"$time_iso8601","uri":"$request_uri",'
        '"status":$status,"bytes":$body_bytes_sent}}';
    access_log /var/log/nginx/full.log full;
    server {{
        server_name files.example;
        location / {{ root /srv; }}
        location /files/ {{ root /srv; }}
        location ~ ^/files/[1-5]\\.bin$ {{ root /srv; }}
    }}
}}
"""


@cache
def logged() -> list[str]:
    return [f"{line}\n" for line in lines_of(Truth(requests=3_000))]


def pack_zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd.compress(data)


def learn(run_cli, *arguments: str | int | Path, stdin: str = "") -> dict[str, Any]:
    run = run_cli("learn", *arguments, "-f", "json", stdin=stdin)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "full.log"
    path.write_text("".join(logged()))
    return path


def test_packed_piped_and_rotated_logs_are_one(run_cli, tmp_path: Path, log: Path) -> None:
    whole = learn(run_cli, log)
    assert learn(run_cli, "-", stdin="".join(logged())) == whole
    parts = {"full.log": logged()[2_000:], "full.log.1": logged()[1_000:2_000], "full.log.2.gz": []}
    for name, lines in parts.items():
        (tmp_path / name).write_text("".join(lines))
    (tmp_path / "full.log.2.gz").write_bytes(gzip.compress("".join(logged()[:1_000]).encode()))
    (tmp_path / "full.log.3.zst").write_bytes(pack_zstd(b""))
    names = [tmp_path / name for name in (*parts, "full.log.3.zst")]
    assert learn(run_cli, *names) == whole
    packed = tmp_path / "nameless"
    for pack in (pack_zstd, bz2.compress, lzma.compress):
        packed.write_bytes(pack("".join(logged()).encode()))
        assert learn(run_cli, packed) == whole, pack


def test_a_pipe_is_waited_for_with_a_word_and_left_on_ctrl_c(tmp_path: Path) -> None:
    pipe = tmp_path / "f"
    os.mkfifo(pipe)

    def start() -> subprocess.Popen[str]:
        run = subprocess.Popen(
            [sys.executable, "-m", "nginx_tune", "learn", str(pipe), "-f", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert run.stderr is not None
        if not select.select([run.stderr], [], [], 60)[0]:
            run.kill()
        assert run.stderr.readline() == f"nginx-tune: {pipe} is a pipe: waiting for a writer\n"
        return run

    run = start()
    pipe.write_text("".join(logged()))
    out, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (0, "")
    assert json.loads(out)["log"]["lines"] == len(logged())
    run = start()
    run.send_signal(signal.SIGINT)
    out, errors = run.communicate(timeout=60)
    assert (out, errors.strip()) == ("", "nginx-tune: interrupted")
    assert run.returncode == 130


@each_row(("name", "what"), [("/dev/zero", "a device"), ("/proc/uptime", "a file of the kernel")])
def test_what_may_never_end_is_refused(run_cli, name: str, what: str) -> None:
    run = run_cli("learn", name)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"nginx-tune: {name}: {what}, not a log\n"


def test_a_log_that_is_this_command_s_own_output_is_refused(run_cli, tmp_path: Path) -> None:
    """As /var/log/nginx/access.log is in images of nginx."""
    log = tmp_path / "access.log"
    log.symlink_to("/dev/stdout")
    reading, writing = os.pipe()
    kept = os.dup(1)
    os.dup2(writing, 1)
    try:
        run = run_cli("learn", log)
    finally:
        os.dup2(kept, 1)
        for one in (kept, reading, writing):
            os.close(one)
    assert run.returncode == 2
    assert f"{log}: is the standard output of this command" in run.stderr
    assert "docker logs NAME | nginx-tune learn -" in run.stderr


def test_formats_and_locations_of_a_configuration(run_cli, tmp_path: Path, log: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    for arguments in ((), ("--log-format", "full")):  # full.log says which of the formats it is
        found = learn(run_cli, log, "-c", conf, *arguments)
        assert found["log"]["format"] == "full"
        assert found["connection_reuse"]["provenance"] == "learnt"
    shares = {share["location"]: share for share in found["traffic"]["locations"]}
    assert set(shares) == {"/files/", r"~ ^/files/[1-5]\.bin$"}
    hot = sum(1 for line in logged() if any(f"/files/{n}.bin" in line for n in range(1, 6)))
    assert shares[r"~ ^/files/[1-5]\.bin$"]["requests_ratio"] == pytest.approx(hot / 3000, rel=1e-5)
    assert found["traffic"]["location_error_ratio"] == 0.0
    (tmp_path / "part.conf").write_text(CONF.replace("http {", "http { include /etc/nt/*.conf;", 1))
    part = run_cli("learn", log, "-c", tmp_path / "part.conf", "-f", "json")
    assert (part.returncode, json.loads(part.stdout)["log"]["format"]) == (4, "full")
    assert (
        ": include /etc/nt/*.conf (--accept-missing '/etc/nt/*.conf' accepts that it is "
        in part.stderr
    )
    as_json = tmp_path / "json.log"
    as_json.write_text(
        '{"t":"2026-11-20T19:26:34+00:00","uri":"/a\\"b?c","status":200,"bytes":7}\n' * 3
    )
    found = learn(run_cli, as_json, "-c", conf, "--log-format", "as_json")
    assert found["log"]["requests"] == 3
    assert found["dataset"]["bytes"] == 7


def test_logs_of_two_formats_are_told_apart(run_cli, tmp_path: Path, log: Path) -> None:
    conf, other = tmp_path / "nginx.conf", tmp_path / "other.log"
    lines = "access_log full.log full; access_log other.log combined;"
    conf.write_text(CONF.replace("http {", f"http {{ server {{ listen 81; {lines} }}", 1))
    other.write_text("".join(logged()))
    refused = run_cli("learn", log, other, "-c", conf)
    assert refused.returncode == 2
    said = f"{log} is written in the format 'full', {other} in 'combined'"
    assert said in refused.stderr
    assert "--log-format" in refused.stderr
    named = learn(run_cli, log, "-c", conf, "--log-format", "full")
    # What no line names is read as what stands beside it is.
    unnamed = tmp_path / "yesterday"
    unnamed.write_text(log.read_text().replace("/files/", "/other/"))
    both = learn(run_cli, log, unnamed, "-c", conf)
    assert both["log"]["format"] == "full"
    assert both["log"]["requests"] == 2 * named["log"]["requests"]


ROOTS = """
events {}
http {
    server {
        root /srv/one;
        location /media/ { alias /srv/two/; }
        location /any/ { root /srv/$host; }
        location = /ping { return 204; }
    }
}
"""


def test_how_often_each_root_is_asked(run_cli, tmp_path: Path) -> None:
    conf, log = tmp_path / "nginx.conf", tmp_path / "access.log"
    conf.write_text(ROOTS)
    paths = ["/media/a"] * 30 + ["/b"] * 10 + ["/any/c"] * 40 + ["/ping"] * 20

    def asked() -> dict[str, float]:
        log.write_text(
            "".join(
                f'192.0.2.1 - - [20/Nov/2026:19:26:34 +0000] "GET {path} HTTP/1.1" 200 7 "-" "-"\n'
                for path in paths
            )
        )
        found: dict[str, float] = learn(run_cli, log, "-c", conf)["dataset"]["requests_by_path"]
        return found

    assert asked() == {"/srv/one": 0.1, "/srv/two": 0.3}
    paths = [path for path in paths if path != "/b"]
    assert asked() == {}, "one root alone is not divided"


def test_nothing_private_leaves(run_cli, tmp_path: Path, log: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    for arguments in ((), ("--with-query",), ("--keep-paths", "--with-query")):
        run = run_cli("learn", log, "--log-format", FULL, "--manifest", manifest, *arguments,
                      "-f", "json")  # fmt: skip
        assert run.returncode == 0, run.stderr
        text = run.stdout + manifest.read_text()
        assert "192.0.2." not in text
        assert "secret" not in text
        assert ("/files/" in text) == ("--keep-paths" in arguments)
    assert manifest.stat().st_mode & 0o777 == 0o600


def test_the_manifest_is_the_traffic(run_cli, tmp_path: Path, log: Path) -> None:
    manifest = tmp_path / "manifest.jsonl.gz"
    form = ("--log-format", FULL)
    learn(run_cli, log, *form, "--manifest", manifest, "--keep-paths")
    head, *requests = map(json.loads, gzip.decompress(manifest.read_bytes()).splitlines())
    assert head["schema"] == "nginx-tune/manifest/1"
    assert head["requests"] == len(requests) == 3_000
    offsets = [request["offset_seconds"] for request in requests]
    assert offsets == sorted(offsets)
    assert offsets[0] == 0.0
    assert offsets[-1] <= head["duration_seconds"] + 5
    starts = sorted(float(line.split()[-6]) - float(line.split()[-5]) for line in logged())
    for offset, start in zip(offsets[::100], starts[::100], strict=True):
        assert offset == pytest.approx(start - starts[0], abs=0.003)
    sizes = {line.split()[6].partition("?")[0]: int(line.split()[9]) for line in logged()}
    assert {request["path"]: request["bytes"] for request in requests} == sizes
    learn(run_cli, log, *form, "--manifest", manifest, "--manifest-requests", 500)
    head, *requests = map(json.loads, gzip.decompress(manifest.read_bytes()).splitlines())
    assert head["paths"] == "hashed"
    assert 200 < len(requests) <= 500
    assert all(len(request["path"]) == 17 for request in requests)


def test_garbage_is_counted_and_not_shown(run_cli, tmp_path: Path) -> None:
    log = tmp_path / "mixed.log"
    bad = "\x1b]0;evil\x07 not a line of this log\n"
    log.write_text(
        logged()[0] + bad + "\n" + logged()[1] + bad + "x" * 100_000 + "\n" + logged()[2]
    )
    run = run_cli("learn", log, "--log-format", FULL)
    assert run.returncode == 0, run.stderr
    assert "2 lines not in the format" in run.stdout
    assert "1 line longer than 64 KiB" in run.stdout
    assert f"left out {log}:2, {log}:5: not in the format" in run.stderr
    assert f"left out {log}:6: longer than 64 KiB" in run.stderr
    assert "evil" not in run.stdout + run.stderr
    assert "\x1b" not in run.stdout + run.stderr


def test_a_time_far_from_all_others_is_in_no_rate(run_cli, tmp_path: Path) -> None:
    log = tmp_path / "back.log"
    log.write_text("".join(logged()[:100]))
    usual = learn(run_cli, log)
    far = logged()[10].replace("/2026:", "/2099:")
    log.write_text("".join([*logged()[:100], far]))
    found = learn(run_cli, log)
    assert (found["log"]["stray_lines"], found["log"]["stretches"]) == (1, 1)
    assert found["rate"] == usual["rate"]


def test_the_rates_of_hosts_add_up_however_their_logs_follow_each_other(
    run_cli, tmp_path: Path
) -> None:
    """Three hosts over the same four days: one after another they would be twelve."""
    asked = (0, 1, 1, 2, 3)

    def lines(host: int) -> str:
        return "".join(
            f'192.0.2.{host} - - [{20 + day}/Nov/2026:10:00:{second:02} +0000] "GET /{host} '
            'HTTP/1.1" 200 7 "-" "-"\n'
            for day in asked
            for second in range(40)
        )

    alone = tmp_path / "h1.log"
    alone.write_text(lines(1))
    one = learn(run_cli, alone)["rate"]
    others = [tmp_path / f"h{host}.log" for host in (2, 3)]
    for host, path in enumerate(others, 2):
        path.write_text(lines(host))
    for order in ([alone, *others], [*others, alone]):
        found = learn(run_cli, *order)["rate"]
        for name in ("mean_per_second", "peak_1s_per_second", "peak_60s_per_second"):
            assert found[name] == pytest.approx(3 * one[name], rel=1e-5), name


@each_row(
    "names, arguments, connections",
    [
        (["h1/access.log", "h2/access.log"], [], 40),
        (["h1-access.log", "h2-access.log"], [], 40),
        (["access.log", "access.log.1"], [], 20),
        (["access.log-20261120.gz", "access.log-20261121.gz"], [], 20),
        (["h1/access.log", "h2/access.log"], ["--log-host", "one"], 20),
        (["access.log", "access.log.1"], ["$hostname"], 40),
    ],
)
def test_connection_numbers_are_a_host_s_own(
    run_cli, tmp_path: Path, names: list[str], arguments: list[str], connections: int
) -> None:
    form = '$msec "$request" $status $connection'
    if arguments == ["$hostname"]:
        arguments, form = [], f"{form} $hostname"
    for second, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        host = f" host{second}" if "$hostname" in form else ""
        path.write_text(
            "".join(
                f'179000000{second}.{n:03} "GET /{second} HTTP/1.1" 200 {n % 20}{host}\n'
                for n in range(80)
            )
        )
    logs = [tmp_path / name for name in names]
    found = learn(run_cli, *logs, "--log-format", form, *arguments)["connection_reuse"]
    assert found["requests_per_connection"] == 160 / connections


def test_what_is_no_log_is_one_clear_line(run_cli, tmp_path: Path) -> None:
    cases = {
        "empty": b"",
        "text": b"hello\nworld\n",
        "zeros": b"\0" * 300_000,
        "cut.gz": gzip.compress(b"nothing like a log\n" * 10)[:15],
        "cut.bz2": bz2.compress(b"nothing like a log\n" * 10)[:15],
        "cut.xz": lzma.compress(b"nothing like a log\n" * 10)[:15],
        "broken.xz": b"\xfd7zXZ\0" + b"\0" * 30,
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        run = run_cli("learn", path)
        assert run.returncode == 2, name
        assert run.stderr.startswith(f"nginx-tune: {path}: "), run.stderr
        assert run.stderr.count("\n") == 1
        assert not run.stdout
    assert run_cli("learn", tmp_path).returncode == 2
    assert run_cli("learn", tmp_path / "gone").returncode == 2
    assert run_cli("learn", tmp_path / "text", "--log-format", "main").returncode == 2
    assert run_cli("learn", tmp_path / "text", "--log-format", "$remote_addr").returncode == 2


@each_row("name", ["access.log", "./access.log", "link.log", "hard.log"])
def test_a_log_by_two_names_is_refused(run_cli, tmp_path: Path, name: str) -> None:
    """As ``access.log*`` has it with a link to the newest: all rates would be twice as high."""
    log = tmp_path / "access.log"
    log.write_text("".join(logged()[:10]))
    (tmp_path / "link.log").symlink_to(log)
    (tmp_path / "hard.log").hardlink_to(log)
    run = run_cli("learn", log, f"{tmp_path}/{name}", "--log-format", FULL)
    assert run.returncode == 2
    assert "would count its requests twice" in run.stderr


def test_json_lines_behind_what_syslog_writes_are_read(run_cli, tmp_path: Path) -> None:
    """As those of other formats are; a line of JSON that is cut off at its beginning is not."""
    entry = '{"time_iso8601":"2026-01-0%dT00:00:00+00:00","request_uri":"/a","status":"200"}\n'
    plain, prefixed = tmp_path / "plain.log", tmp_path / "prefixed.log"
    plain.write_text("".join(entry % (1 + at % 3) for at in range(30)))
    lines = [f"Nov 27 10:00:0{at % 9} host nginx: {entry % (1 + at % 3)}" for at in range(30)]
    prefixed.write_text("".join(lines))
    found = [
        json.loads(run_cli("learn", path, "--log-format", "json", "-f", "json").stdout)
        for path in (plain, prefixed)
    ]
    assert found[0]["log"]["requests"] == found[1]["log"]["requests"] == 30
    (tmp_path / "cut.log").write_text('"x":"y", "z": {"request_uri":"/a","status":"200"}\n' * 30)
    assert run_cli("learn", tmp_path / "cut.log", "--log-format", "json").returncode != 0


COMBINED = '127.0.0.1 - - [01/Jan/2026:00:00:0%d +0000] "GET /%s HTTP/1.1" %d 9 "-" "%s"\n'


@each_row("json_lines", [False, True])
def test_the_product_s_own_requests_are_left_out_and_counted(
    run_cli, tmp_path: Path, json_lines: bool
) -> None:
    """What apply and rollback ask to see who answers, canaries, and a load of the probe."""
    own = ("nginx-tune", "nginx-tune-probe/1.2.3")
    others = ("Mozilla/5.0", "nginx-tuner", "-", "curl nginx-tune")
    log = tmp_path / "access.log"
    lines = [COMBINED % (n % 10, n, 400 if agent in own else 200, agent)
             for n, agent in enumerate(own + others)]  # fmt: skip
    if json_lines:
        lines = [
            json.dumps({"time": "2026-01-01T00:00:00+00:00", "url": f"/{n}", "status": 200,
                        "http_user_agent": agent}) + "\n"
            for n, agent in enumerate(own + others)
        ]  # fmt: skip
    log.write_text("".join(lines))
    form = ("--log-format", "json") if json_lines else ()
    found = learn(run_cli, log, *form)["log"]
    assert (found["requests"], found["lines"]) == (len(others), len(lines))
    assert found["rejected"] == [{"reason": "own", "lines": len(own)}]
    said = run_cli("learn", log, *form, "-f", "console").stdout
    assert "left out: 2 lines with nginx-tune's own requests" in said
    log.write_text("".join(lines[:2]))
    refused = run_cli("learn", log, *form)
    assert refused.returncode == 2
    assert "all 2 requests are nginx-tune's own" in refused.stderr
