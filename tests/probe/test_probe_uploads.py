"""Bodies that the probe sends: whole, of the right bytes, at their pace, however answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from probe_loads import StartNginx
from test_probe_http3 import listening as listening_quic
from upload_loads import (
    LATE_READER,
    MARKED,
    counting_origin,
    listening,
    sent,
    upload_class,
    upload_plan,
)

from nginx_tune.documents.loadplan import Arrivals, Http2, Http3, Paths, Target, Tls, Upload
from nginx_tune.measure.load.classes import family_faults
from nginx_tune.measure.load.probe import run_probe
from nginx_tune.nginx.lab.network import make_certificate

pytestmark = pytest.mark.needs("nginx", "probe")

OURS = ["sh", "-c", '"$@"; true', "sh"]
SIZES = [0, 1, 1000, 65_536, 65_537, 300_001, 2_000_000]


@pytest.fixture(scope="module")
def server() -> Iterator[Target]:
    with listening() as (port, _):
        yield Target(address="127.0.0.1", port=port)


@pytest.fixture(scope="module")
def origin() -> Iterator[int]:
    with counting_origin() as port:
        yield port


def test_every_byte_of_every_body_is_as_it_should_be(server: Target) -> None:
    for chunked in (False, True):
        upload = Upload(bytes=SIZES, chunked=chunked)
        found, came = sent(server, upload_class("/plain", upload=upload))
        # The server answers 500 where a byte is another; where one is missing the count differs.
        assert found.errors == {}, chunked
        assert found.requests == came.bodies == came.confirmed == 20, chunked
        assert came.unconfirmed == came.early_answers == came.cut_off == 0, chunked
        assert came.upload_seconds.count == 20, chunked
        assert found.response_seconds.max is not None
        assert came.upload_seconds.max is not None
        assert came.upload_seconds.max <= found.response_seconds.max, chunked
        assert found.connections_opened < 20, "they are used again"


def test_a_body_in_chunks_has_more_than_one_and_an_end(server: Target) -> None:
    found, came = sent(server, upload_class("/chunked", upload=Upload(bytes=[9], chunked=True)))
    assert (found.errors, came.confirmed) == ({}, 20)


def test_sizes_are_drawn_again_alike_and_put_is_a_method(server: Target) -> None:
    upload = Upload(bytes=[1, 1000, 1_000_000])
    drawn = [sent(server, upload_class("/plain", method="PUT", upload=upload), seed=seed)[1].bytes
             for seed in (1, 1, 2)]  # fmt: skip
    assert drawn[0] == drawn[1] != drawn[2]
    assert 1_000_000 < drawn[0] < 20_000_000, "some of each"


def test_bodies_go_on_when_a_full_socket_takes_all_that_waited(tmp_path: Path) -> None:
    # Requests that come while the socket is full make as much as may wait. Once that is gone,
    # nothing comes about any more but what the probe does of itself. (A unix socket says that it
    # has room when it has room for all of that.)
    path = tmp_path / "s"
    item = upload_class(
        arrivals=Arrivals(kind="constant", rate_per_second=20),
        connections=1,
        upload=Upload(bytes=[1_000_000]),
        http2=Http2(streams=16),
    )
    with listening(str(path), server=LATE_READER):
        found, came = sent(Target(unix=str(path)), item)
    assert (found.errors, came.bodies, found.requests) == ({}, 10, 10)
    longest = found.response_seconds.max
    assert longest is not None
    assert longest < item.timeout_seconds / 2, "none waits until time is up"


@pytest.mark.alone  # holds a pace
def test_a_slow_client_takes_its_time_and_others_do_not_wait(server: Target) -> None:
    slow = upload_class("/plain", upload=Upload(bytes=[100_000], bytes_per_second=200_000))
    for _ in range(4):  # on a busy machine one may be spoilt
        found, came = sent(server, slow)
        assert (found.errors, came.confirmed) == ({}, 20)
        assert came.upload_seconds.p50 is not None
        # The last piece of 20 ms needs no rest after it.
        assert came.upload_seconds.p50 >= 0.47
        if came.upload_seconds.p50 < 0.55 and found.connections_opened >= 15:
            return
    pytest.fail(f"{came}")


def test_an_answer_before_the_body_was_sent_is_told_and_judged_by_its_status(
    server: Target,
) -> None:
    big = Upload(bytes=[20_000_000])
    for path in ("/refuse", "/reset-after-refusal"):
        found, came = sent(server, upload_class(path, upload=big))
        assert found.errors == {"status": 20}, path
        assert found.statuses == {"413": 20}
        assert (came.early_answers, came.cut_off, came.bodies) == (20, 0, 0)
        expected, came = sent(server, upload_class(path, upload=big, status=[413]))
        assert (expected.errors, expected.requests) == ({}, 20)
        assert came.early_answers == 20
        assert expected.connections_opened == 20, "none can be used again"


@pytest.mark.parametrize(("path", "kinds"), [("/reset", {"reset"}), ("/close", {"reset", "empty"})])
def test_a_connection_that_ends_inside_the_body_is_told_and_sent_again_is_nothing(
    server: Target, path: str, kinds: set[str]
) -> None:
    found, came = sent(server, upload_class(path, upload=Upload(bytes=[20_000_000])))
    assert set(found.errors) <= kinds
    assert sum(found.errors.values()) == came.cut_off == 20
    assert (found.retried, found.requests, came.bodies) == (0, 0, 0)


def test_who_reads_nothing_is_waited_for_until_the_time_is_up(server: Target) -> None:
    mute = upload_class("/mute", upload=Upload(bytes=[50_000_000]), timeout_seconds=0.5)
    found, came = sent(server, mute)
    assert found.errors == {"timeout": 20}
    assert (came.bodies, came.early_answers, came.cut_off) == (0, 0, 0)
    assert came.upload_seconds.count == came.upload_seconds.censored == 20
    ends, came = sent(
        server, msgspec.structs.replace(mute, timeout_seconds=60.0), drain_seconds=0.2
    )
    assert ends.censored == came.upload_seconds.censored == 20


def test_a_body_waits_until_it_is_wanted_and_is_kept_where_it_is_not(server: Target) -> None:
    asking = Upload(bytes=[300_000], expect_continue=True)
    found, came = sent(server, upload_class("/continue", upload=asking))
    assert (found.errors, came.confirmed) == ({}, 20)
    assert came.upload_seconds.p50 is not None
    assert came.upload_seconds.p50 >= 0.2
    with listening() as (port, process):
        place = Target(address="127.0.0.1", port=port)
        found, came = sent(place, upload_class("/unwanted", upload=asking))
        assert (found.errors, came.early_answers, came.bytes) == ({"status": 20}, 20, 0)
        assert process.stdout is not None
        assert {process.stdout.readline() for _ in range(20)} == {b"nothing\n"}


def test_what_the_far_side_counted_is_held_against_what_was_sent(server: Target) -> None:
    short, came = sent(server, upload_class("/short"))
    assert (short.errors, came.confirmed, came.bodies) == ({"upload": 20}, 0, 20)
    silent, came = sent(server, upload_class("/silent"))
    assert (silent.errors, came.confirmed, came.unconfirmed) == ({}, 0, 20)


@pytest.mark.parametrize(
    "way",
    [
        "chunked",
        "tls-http2",
        "unbuffered-http2",
        *(pytest.param(way, marks=pytest.mark.thorough) for way in ("http1", "tls", "http2")),
    ],
)
def test_bodies_pass_a_real_nginx_whole(
    start_nginx: StartNginx, free_port: int, tmp_path: Path, origin: int, way: str
) -> None:
    words, tls = "", None
    if "tls" in way:
        made = make_certificate(tmp_path, names=["localhost"])
        words = f"ssl_certificate {made.certificate}; ssl_certificate_key {made.key};"
        tls = Tls(ca_file=str(made.certificate))
    buffering = "off" if "unbuffered" in way else "on"
    start_nginx(
        argv=OURS,
        env=MARKED,
        server=f"listen 127.0.0.1:{free_port} {'ssl' if tls else ''} "
        f"{'http2' if 'http2' in way else ''}; {words} client_max_body_size 8m; "
        f"location /uploads {{ proxy_pass http://127.0.0.1:{origin}; proxy_http_version 1.1; "
        f"proxy_request_buffering {buffering}; }}",
    )
    upload = Upload(bytes=SIZES, chunked=way == "chunked")
    item = upload_class(upload=upload)
    if "http2" in way:
        # Few connections: the streams of each wait for its windows in turn.
        item = upload_class(upload=upload, connections=2, http2=Http2(streams=10))
    found, came = sent(Target(address="127.0.0.1", port=free_port, tls=tls), item)
    assert found.errors == {}
    assert found.requests == came.bodies == came.confirmed == 20


def test_classes_with_bodies_share_connections_and_each_counts_its_own(
    start_nginx: StartNginx, free_port: int, tmp_path: Path, origin: int
) -> None:
    passed_on = f"proxy_pass http://127.0.0.1:{origin}; proxy_request_buffering off;"
    start_nginx(
        argv=OURS,
        env=MARKED,
        server=f"listen 127.0.0.1:{free_port} http2; location = /uploads {{ {passed_on} }}"
        " location = /ok { return 200; }",
    )

    def asks(path: str) -> dict[str, object]:
        """Ten requests, with whose answers the run ends: all bytes are in the measured time."""
        lines: list[dict[str, object]] = [{"schema": "nginx-tune/manifest/1", "paths": "kept"}]
        lines += [{"offset_seconds": number / 100, "path": path} for number in range(10)]
        file = tmp_path / path[1:]
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        paths = Paths(kind="manifest", manifest=str(file))
        return {"arrivals": Arrivals(kind="replay"), "paths": paths, "connections": 2}

    shared: dict[str, object] = {"http2": Http2(streams=10), "connections_of": "plain"}
    sizes = {"large": 700_000, "small": 999}
    owner = {**asks("/ok"), "upload": None, "method": "GET", "name": "plain"}
    classes = [upload_class(**{**owner, "http2": Http2(streams=10)})]
    for name, size in sizes.items():
        upload = Upload(bytes=[size])
        classes.append(upload_class(**asks("/uploads"), **shared, name=name, upload=upload))
    place = Target(address="127.0.0.1", port=free_port)
    plan = upload_plan(place, classes[0], classes=classes, duration_seconds=20.0)
    assert family_faults(classes) == []
    found = run_probe(plan).classes
    assert {name: (it.requests, it.errors) for name, it in found.items()} == dict.fromkeys(
        ("plain", *sizes), (10, {})
    )
    for name, size in sizes.items():
        came = found[name].upload
        assert came is not None
        assert (came.confirmed, came.bodies, came.bytes) == (10, 10, 10 * size)
        assert found[name].connections_opened == 0
    assert found["plain"].upload is None


@pytest.mark.parametrize("way", ["http1", "http2"])
def test_nginx_refuses_a_body_that_is_too_large(
    start_nginx: StartNginx, free_port: int, origin: int, way: str
) -> None:
    start_nginx(
        argv=OURS,
        env=MARKED,
        server=f"listen 127.0.0.1:{free_port} {way if way == 'http2' else ''}; "
        f"location /uploads {{ proxy_pass http://127.0.0.1:{origin}; }}",
    )
    http2 = Http2(streams=10) if way == "http2" else None
    item = upload_class(
        upload=Upload(bytes=[20_000_000]), http2=http2, connections=4 if http2 else 40
    )
    found, came = sent(Target(address="127.0.0.1", port=free_port), item)
    assert (found.errors, found.statuses) == ({"status": 20}, {"413": 20})
    assert (came.early_answers, came.bodies, came.cut_off) == (20, 0, 0)


@pytest.mark.alone  # holds a pace
def test_slow_streams_of_one_connection_have_a_pace_each(
    start_nginx: StartNginx, free_port: int, origin: int
) -> None:
    start_nginx(
        argv=OURS,
        env=MARKED,
        server=f"listen 127.0.0.1:{free_port} http2; location /uploads {{ "
        f"proxy_pass http://127.0.0.1:{origin}; }}",
    )
    item = upload_class(
        upload=Upload(bytes=[100_000], bytes_per_second=200_000),
        connections=1,
        http2=Http2(streams=100),
        arrivals=Arrivals(kind="closed", users=8),
    )
    for _ in range(4):
        found, came = sent(Target(address="127.0.0.1", port=free_port), item, duration_seconds=1.0)
        assert (found.errors, came.unconfirmed) == ({}, 0)
        assert came.upload_seconds.p50 is not None
        assert came.upload_seconds.p50 >= 0.47
        if came.upload_seconds.p50 < 0.55:
            return
    pytest.fail(f"{came}")


@pytest.mark.needs("nginx-1.30", "openssl")
def test_bodies_pass_over_http3(tmp_path: Path, origin: int) -> None:
    passed_on = (
        f"client_max_body_size 8m; location /uploads {{ proxy_pass http://127.0.0.1:{origin}; }}"
    )
    with listening_quic("1.30", tmp_path, passed_on, argv=OURS, env=MARKED) as quic:
        place = Target(address="127.0.0.1", port=quic.nginx.port, tls=Tls(verify=False))
        item = upload_class(upload=Upload(bytes=SIZES), connections=2, http3=Http3(streams=10))
        found, came = sent(place, item)
        assert found.errors == {}
        assert found.requests == came.bodies == came.confirmed == 20
        too_large = msgspec.structs.replace(item, upload=Upload(bytes=[20_000_000]))
        found, came = sent(place, too_large)
        assert (found.errors, came.early_answers) == ({"status": 20}, 20)
