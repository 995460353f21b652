"""Connections over QUIC that change their port: what nginx makes of it, and what is counted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_probe_http3 import SERIES, closed, listening, measured, over_http3, run

from nginx_tune.documents.loadplan import Http3, LoadClass, Migration, Paths
from nginx_tune.documents.measured_class import ClassMeasurement, Http3Streams
from nginx_tune.errors import UsageError

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("nginx", "probe", "nginx-1.30", "openssl")

SLOW = "limit_rate_after 0; location /100k { limit_rate 400k; }"
"""Answers that last about a quarter of a second, so that some are under way at any moment."""

IDS = "quic_active_connection_id_limit 8; " + SLOW
"""nginx takes two connection IDs of a client by default, and each path needs one of its own."""

NO_IDS = "quic no available client ids for new path"

KINDS = ["rebinding", "migration"]


def moving(**changes: object) -> Http3:
    """Each of the connections changes its port five times a second."""
    return Http3(streams=10, migration=Migration(**{"every_seconds": 0.2, **changes}))  # type: ignore[arg-type]


def beneath(found: ClassMeasurement) -> Http3Streams:
    assert found.http3 is not None
    counted = found.http3
    left = counted.migrations - counted.followed_migrations - counted.lost_migrations
    assert 0 <= left <= 8, "those that were under way at the end"
    assert counted.moved_answers <= counted.moved_requests
    return counted


def eight_users(**changes: object) -> LoadClass:
    """Two users on each of four connections, whose bodies are told by their length."""
    paths = Paths(kind="fixed", paths=["/100k"], bytes=[100 * 1024])
    return over_http3(paths=paths, arrivals=closed(8), connections=4, **changes)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_follows_a_connection_to_its_new_port(
    series: str, kind: str, tmp_path: Path
) -> None:
    """nginx asks whether the port is the client's (PATH_CHALLENGE), and goes on.

    Where data took all that it may send to a port that is not validated yet, its questions are not
    sent, and seven seconds after the last change it ends the connection ("no viable path"): seen
    once in some thirty connections.
    """
    with listening(series, tmp_path, IDS) as quic:
        item = eight_users(http3=moving(kind=kind))
        found = run(quic, item, duration_seconds=2.0, drain_seconds=20.0)["c"]
        log = quic.nginx.error_log.read_text()
    counted = beneath(found)
    cut = sum(found.errors.values())
    assert found.errors.keys() <= {"truncated"}
    assert cut <= 4, "of one or two connections"
    assert counted.migrations >= 10
    assert counted.lost_migrations == 0
    assert counted.followed_migrations >= counted.migrations - 4
    assert counted.path_challenges >= counted.followed_migrations, "it looked whose the port is"
    assert counted.moved_requests > 10
    assert counted.moved_answers >= counted.moved_requests - 8 - cut
    assert found.connections_opened == 4, "no connection was opened anew"
    assert "quic migrated to path" in log
    assert NO_IDS not in log


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_change_finds_no_connection_id_left(
    series: str, kind: str, tmp_path: Path
) -> None:
    """The old path keeps one of the two IDs that nginx takes by default: after a rebinding for
    seven seconds (three tries to reach it), after a migration for good."""
    with listening(series, tmp_path, SLOW) as quic:
        item = eight_users(http3=moving(kind=kind), timeout_seconds=1.5)
        found = run(quic, item, duration_seconds=4.0, drain_seconds=5.0)["c"]
        log = quic.nginx.error_log.read_text()
    counted = beneath(found)
    assert NO_IDS in log
    assert counted.lost_migrations >= 4, "the second of each connection"
    # The first change of each is followed, and those of the connections opened in their places.
    assert 4 <= counted.followed_migrations <= found.connections_opened


def test_a_change_after_so_many_requests(tmp_path: Path) -> None:
    with listening("1.30", tmp_path, IDS) as quic:
        every_ten = Http3(streams=1, migration=Migration(every_requests=10))
        item = over_http3("/1k", http3=every_ten, arrivals=closed(1), connections=1)
        found = run(quic, item, duration_seconds=2.0)["c"]
    counted = beneath(found)
    assert found.errors == {}
    assert counted.migrations >= 2
    # One that the server has not followed yet changes no further: fewer, never more.
    assert counted.migrations <= counted.streams / 10
    assert counted.moved_requests == counted.migrations


def four_workers(series: str, place: Path, main: str) -> tuple[ClassMeasurement, list[str]]:
    """Sixteen users on eight connections that change their port twice a second."""
    with listening(series, place, IDS, workers=4, main=main) as quic:
        item = over_http3(
            "/100k",
            http3=moving(every_seconds=0.5),
            arrivals=closed(16),
            connections=8,
            timeout_seconds=1.5,
        )
        changes = {"duration_seconds": 4.0, "drain_seconds": 5.0}
        measurement = measured(quic.nginx.port, item, **changes)
    return measurement.classes["c"], measurement.flags


@pytest.mark.parametrize(
    ("series", "failures", "said"),
    [
        ("1.26", {"truncated", "reset"}, "reset by peer"),
        ("1.30", {"timeout", "empty"}, "no answer any more"),
    ],
)
def test_workers_with_sockets_of_their_own_lose_connections(
    series: str, failures: set[str], said: str, tmp_path: Path
) -> None:
    """The kernel gives a new port to any of four workers: three in four know no such connection.
    Once they answered by a stateless reset; now its token is bound to a worker (nginx#1159), so
    that a client believes that of its own worker alone, and waits."""
    found, flags = four_workers(series, tmp_path, "")
    counted = beneath(found)
    assert counted.lost_migrations >= 5
    assert counted.followed_migrations >= 1
    assert counted.moved_answers < counted.moved_requests
    assert found.errors.keys() <= failures
    assert sum(found.errors.values()) > 0, "answers under way are lost"
    assert found.connections_opened >= counted.lost_migrations, "others in their places"
    assert f"quic: after a change of port: {said}" in flags


@pytest.mark.needs("root")
@pytest.mark.parametrize("series", SERIES)
def test_with_quic_bpf_the_worker_stays_the_same(series: str, tmp_path: Path) -> None:
    """The program that nginx loads finds the worker's socket in the connection ID."""
    found, flags = four_workers(series, tmp_path, "quic_bpf on;")
    counted = beneath(found)
    assert counted.lost_migrations == 0, flags
    assert counted.migrations >= 20
    assert counted.moved_answers >= 0.8 * counted.moved_requests
    assert found.connections_opened == 8


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"http3": Http3(migration=Migration())}, "every_seconds"),
        ({"http3": Http3(migration=Migration(every_seconds=0.001))}, "every_seconds"),
        ({"http3": Http3(migration=Migration(every_requests=0))}, "every_requests"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        measured(1, over_http3("/1k", **changes))


def test_the_command_says_it(run_cli: RunCli, tmp_path: Path) -> None:
    with listening("1.30", tmp_path) as quic:
        url = f"https://127.0.0.1:{quic.nginx.port}/1k"
        options = ("--duration", "1s", "--warmup", "0", "--allow-live", "--insecure")
        asked = ("probe", url, "--http3", "--connections", "2", "--streams", "5", *options)
        result = run_cli(*asked, "--migrate-every", "300ms")
        assert result.returncode == 0, result.stderr
        assert "with another port every 300 ms, with another connection ID" in result.stdout
        assert "changes of port, of which the server followed" in result.stdout
        for wrong, word in [
            (("--rebind-every", "0"), "at least one request"),
            (("--rebind-every", "2h"), "from 10ms to 1h"),
            (("--rebind-every", "soon"), "no duration"),
            (("--rebind-every", "2s", "--migrate-every", "2s"), "exclude"),
        ]:
            refused = run_cli(*asked, *wrong)
            assert (refused.returncode, word in refused.stderr) == (2, True), refused.stderr
        over_tcp = run_cli("probe", url, *options, "--http2", "--rebind-every", "2s")
        assert (over_tcp.returncode, "--http3" in over_tcp.stderr) == (2, True), over_tcp.stderr
