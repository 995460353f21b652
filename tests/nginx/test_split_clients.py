"""Which part of split_clients a key falls into, against a real nginx."""

import http.client
from pathlib import Path

import pytest
from free_ports import free_port
from tiers import dice
from unprivileged import let_all_see

from nginx_tune.documents.lab import Lab, LabDisk
from nginx_tune.experiment.scenario.workload import even_part, murmur_hash2, part_of, share_out
from nginx_tune.measure.load.classes import ServedFile
from nginx_tune.nginx.instance import start_instance

CONF = """\
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    split_clients $request_uri $half {{ 12.5% 0; 37.5% 1; * 2; }}
    split_clients $request_uri $third {{ 33.3% 0; 33.3% 1; * 2; }}
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 "$half $third"; }} }}
}}
"""


def test_the_hash_is_murmur_hash_2() -> None:
    assert murmur_hash2(b"") == 0
    assert len({murmur_hash2(b"x" * length) for length in range(64)}) == 64
    assert all(0 <= murmur_hash2(b"key%d" % n) < 1 << 32 for n in range(100))


def test_objects_are_shared_out_over_the_disks_that_are_no_spare() -> None:
    disks = [LabDisk(name=n, writable=n != "ro", spare=n == "s") for n in ("a", "ro", "s", "b")]
    objects = [ServedFile(f"/{number}", 1) for number in range(400)]
    found = share_out(Lab(disks=disks), objects, host="h")
    assert list(found) == ["a", "b"]
    assert sorted(found["a"] + found["b"]) == sorted(objects)
    assert min(map(len, found.values())) > 150
    assert found["a"][0].url == next(
        one.url for one in objects if even_part(f"httph{one.url}".encode(), 2) == 0
    )


@pytest.mark.needs("root", "nginx")
def test_nginx_splits_in_the_same_way(tmp_path: Path) -> None:
    let_all_see(tmp_path)
    port = free_port()
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.format(directory=tmp_path, port=port))
    draw = dice("keys of split_clients")
    keys = [f"/{draw.randbytes(draw.randint(0, 9)).hex()}" for _ in range(300)]
    instance = start_instance(
        "nginx", conf, stderr_path=tmp_path / "stderr", address=("127.0.0.1", port)
    )
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        said = []
        for key in keys:
            connection.request("GET", key)
            said.append(connection.getresponse().read().decode())
        connection.close()
    finally:
        instance.stop()
    assert said == [
        f"{part_of(key.encode(), [1250, 3750])} {even_part(key.encode(), 3)}" for key in keys
    ]
    assert len(set(said)) >= 4
