"""From the access log of a server to the same requests in a lab, whose files are made for them."""

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import RunCli
from free_ports import free_port
from started import running, until
from twins import twin

from nginx_tune.documents.base import encode
from nginx_tune.documents.learning import ManifestRequest
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.validate.replay import Placing, make_replay, plan_files

SIZES = {"a.jpg": 30_000, "b/c d.bin": 120_000, "big": 900_000, "dir/index.html": 5_000}
ASKED = [
    ("/a.jpg", {}), ("/b/c%20d.bin", {}), ("/dir", {}), ("/dir/", {}), ("/gone", {}),
    ("/big", {"Range": "bytes=100-299"}), ("/big", {}), ("/a.jpg?v=2", {}), ("/private", {}),
]  # fmt: skip
ANSWERS = [200, 200, 301, 200, 404, 206, 200, 200, 403]

KEPT = Placing("", "index.html", hashed=False, passes=lambda path: path.startswith("/api"))


class Server(NamedTuple):
    """A running nginx and what it logged."""

    port: int
    log: Path
    conf: Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """An nginx that was asked for each of ``ASKED`` five times."""
    root = tmp_path / "site"
    for name, size in SIZES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes(size))
    port = free_port()
    conf, log = tmp_path / "nginx.conf", tmp_path / "log" / "access.log"
    log.parent.mkdir()
    conf.write_text(
        f"user root; pid {tmp_path}/pid; error_log {tmp_path}/log/error.log; events {{}}"
        f" http {{ access_log {log}; server {{ listen 127.0.0.1:{port};"
        f" location / {{ root {root}; }} location = /private {{ return 403; }} }} }}"
    )
    with running(["/usr/sbin/nginx", "-c", conf, "-g", "daemon off;"]):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        # All in one second of the log, which knows none finer: the replay then lasts no longer.
        into = time.time() % 1
        time.sleep(1 - into if into > 0.4 else 0)
        for _ in range(5):
            for (url, headers), status in zip(ASKED, ANSWERS, strict=True):
                connection.request("GET", url, headers=headers)
                response = connection.getresponse()
                response.read()
                assert response.status == status, url
        connection.close()
        # nginx logs a request once its answer is sent.
        until(lambda: log.read_text().count("\n") == 5 * len(ASKED))
        yield Server(port, log, conf)


def learn(run_cli: RunCli, server: Server, *arguments: str) -> tuple[dict[str, Any], Path]:
    """The workload, and the file of the manifest."""
    manifest = server.conf.parent / f"manifest{''.join(arguments)}.jsonl"
    run = run_cli("learn", server.log, "--manifest", manifest, *arguments, "-f", "json")
    assert run.returncode == 0, run.stderr
    workload: dict[str, Any] = json.loads(run.stdout)
    return workload, manifest


@pytest.mark.needs("nginx", "probe")
def test_redirects_are_no_files(run_cli: RunCli, server: Server) -> None:
    """They are counted as what they are, as refusals and what is not there."""
    workload, manifest = learn(run_cli, server, "--keep-paths")
    shares = workload["traffic"]["statuses"]
    assert shares["301"] == pytest.approx(1 / 9, rel=0.01)
    _, *requests = map(json.loads, manifest.read_text().splitlines())
    assert {request["path"]: request["bytes"] for request in requests} == {
        "/a.jpg": 30_000, "/b/c%20d.bin": 120_000, "/dir/": 5_000, "/big": 900_000
    }  # fmt: skip


@pytest.mark.needs("root", "nginx", "probe", "loop", "ip")
@pytest.mark.parametrize("paths", [(), pytest.param(("--keep-paths",), marks=pytest.mark.thorough)])
def test_a_lab_has_files_of_the_sizes_that_were_sent(
    run_cli: RunCli, server: Server, paths: tuple[str, ...]
) -> None:
    """Hashed or kept: every body is as long as the log says. Ranges need their paths' headers."""
    _, manifest = learn(run_cli, server, *paths)
    state = {"XDG_STATE_HOME": str(server.conf.parent / "state")}
    run = run_cli(
        "-q", "validate", server.conf, "--against", twin(server.conf), "--lab", "memory",
        "--manifest", manifest, "--pairs", "1", "--duration", "1s", "--warmup", "20ms",
        "--accept-inconclusive", "-f", "json", env=state,
    )  # fmt: skip
    assert run.returncode in {0, 4}, run.stderr
    said = "\n".join(json.loads(run.stdout)["environment"]["differences"])
    assert "4 files of 1,055,000 bytes in all, with the sizes of the manifest" in said
    shown = json.loads(run_cli("runs", "show", "last", "-f", "json", env=state).stdout)
    for block in shown["result"]["measurements"]:
        site = block["classes"]["site"]
        assert site["errors"] == {}
        # 30 requests; the log knows no finer time than seconds, so the last may lie beyond.
        assert 15 <= site["requests"] <= 30


@pytest.mark.needs("nginx", "probe")
def test_the_server_itself_is_asked_again(run_cli: RunCli, server: Server, tmp_path: Path) -> None:
    _, manifest = learn(run_cli, server, "--keep-paths")
    requests = LoadClass(
        name="log",
        arrivals=Arrivals(kind="replay"),
        paths=Paths(kind="manifest", manifest=str(manifest)),
        connections=8,
    )
    target = Target(address="127.0.0.1", port=server.port)
    plan = LoadPlan(target=target, classes=[requests], duration_seconds=5.0)
    (tmp_path / "plan.json").write_bytes(encode(plan))
    run = run_cli("probe", tmp_path / "plan.json", "--allow-live", "-f", "json")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)["classes"]["log"]
    assert (found["errors"], found["requests"]) == ({}, 30)


def requests(*paths: str, size: int | None = 1000) -> list[ManifestRequest]:
    return [
        ManifestRequest(offset_seconds=float(at), path=path, bytes=size)
        for at, path in enumerate(paths)
    ]


def test_names_stay_below_the_root() -> None:
    names = {
        "/a": "a",
        "/a%20b?c": "a b",
        "//a/./b": "a/b",
        "/": "index.html",
        "/a/": "a/index.html",
        "/../etc/passwd": None,
        "/%2e%2e/etc/passwd": None,
        "/a%00b": None,
        "/" + "x" * 256: None,
        "/%FF": "\udcff",
    }
    assert {path: KEPT.name(path) for path in names} == names


def test_a_location_of_its_own_is_below_its_prefix() -> None:
    placing = KEPT._replace(url_prefix="/media")
    assert placing.name("/media/a") == "a"
    assert placing.name("/other/a") is None
    hashed = placing._replace(hashed=True)
    assert (hashed.name("/0123"), hashed.url("/0123")) == ("0123", "/media/0123")


def test_a_share_of_the_objects_is_kept_with_all_their_requests() -> None:
    asked = requests(*[f"/{number % 500}" for number in range(2000)])
    files = plan_files(asked, KEPT, 0.2)
    assert 60 < len(files.sizes) < 140  # 100 on average, with a standard deviation of 9
    assert plan_files(asked, KEPT, 0.2) == files
    assert len(plan_files(asked, KEPT, None).sizes) == 500
    smaller = plan_files(asked, KEPT, 0.1).sizes
    assert set(smaller) < set(files.sizes)


def test_what_no_request_tells_is_usual() -> None:
    asked = [*requests("/a", "/b", size=300), *requests("/c", size=None)]
    assert plan_files(asked, KEPT, None).sizes == {"a": 300, "b": 300, "c": 300}


def test_requests_that_are_passed_on_need_no_file(tmp_path: Path) -> None:
    """Their length is the stub's, so it is not checked; what can be no file is left out."""
    manifest = tmp_path / "m.jsonl"
    lines = [{"schema": "nginx-tune/manifest/1", "paths": "kept"}]
    lines += [
        {"offset_seconds": 0.1 * at, "path": path, "bytes": 10}
        for at, path in enumerate(("/api/x", "/a", "/a/b", "/../c"))
    ]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    replay = make_replay(manifest, tmp_path, KEPT, scale=None)
    assert replay.sizes == {"a/b": 10}
    _, *kept = map(json.loads, Path(replay.manifest).read_text().splitlines())
    assert [(line["path"], line.get("bytes")) for line in kept] == [("/api/x", None), ("/a/b", 10)]
    assert "2 of 4 requests are not for files of the site" in replay.notes


def test_a_manifest_of_another_site_is_one_line(tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    manifest.write_text('{"schema":"nginx-tune/manifest/1"}\n{"offset_seconds":0,"path":"/a"}\n')
    with pytest.raises(UndecidedError, match="none of its 1 requests is for a file of the site"):
        make_replay(manifest, tmp_path, KEPT._replace(url_prefix="/x"), scale=None)
