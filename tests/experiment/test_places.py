"""What a sandbox shows: the places that nginx writes to, and the facts of an emulated host."""

from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Cpu, Facts, Memory
from nginx_tune.documents.lab import Lab, LabDisk, LabLink
from nginx_tune.experiment.target import written_files
from nginx_tune.experiment.view import (
    emulate,
    plan_places,
    plan_view,
    required_directories,
    written_directories,
)


def test_places_are_what_the_build_and_the_configuration_write_to() -> None:
    flags = [
        "--with-threads",
        "--error-log-path=stderr",
        "--http-log-path=/var/log/nginx/access.log",
        "--pid-path=/run/nginx.pid",
        "--lock-path=/var/lock/nginx.lock",
        "--http-proxy-temp-path=/var/lib/nginx/proxy",
    ]
    written = ["/srv/logs/error.log", "syslog:server=1.2.3.4", "/logs/$host.log", "/dev/null"]
    assert plan_places(flags, written) == [
        "/run",
        "/srv/logs",
        "/var/lib/nginx",
        "/var/lock",
        "/var/log/nginx",
    ]


def test_a_cache_is_covered_and_nothing_beside_it() -> None:
    tree = parse_text(
        "events {} http { proxy_cache_path /var/cache/nginx keys_zone=small:1m; server {"
        " access_log /var/log/nginx/a.log; proxy_temp_path /var/tmp/nginx; } }"
    )
    assert plan_places([], written_files(tree)) == [
        "/run", "/var/cache/nginx", "/var/log/nginx", "/var/tmp/nginx",
    ]  # fmt: skip
    assert required_directories(written_files(tree)) == ["/var/cache", "/var/log/nginx", "/var/tmp"]


def test_a_cache_is_written_and_not_shown() -> None:
    """A place that is shown takes no writes, inside of one that does neither."""
    tree = parse_text(
        "events {} http { proxy_cache_path /srv/site/cache keys_zone=small:1m; server {"
        " access_log /srv/logs/site/a.log; location / { proxy_cache small;"
        " proxy_pass http://127.0.0.1:1; } } }",
        file="/srv/site/nginx.conf",
    )
    view = plan_view([tree], [], None, directory="/")
    assert "/srv/site" in view.shown
    assert "/srv/site/cache" not in view.shown
    assert {"/srv/site", "/srv/site/cache", "/srv/logs/site"} <= set(view.written)


def test_the_whole_host_is_no_place_to_write_to() -> None:
    put = "events {} http { server { location /up/ { alias /%s; dav_methods PUT; } } }"
    for name, places in (("", []), ("srv/up/", ["/srv/up"])):
        assert written_directories(parse_text(put % name)) == places


def test_the_threads_of_all_pools_are_counted() -> None:
    for pools, threads in (
        ("", 0),
        ("thread_pool a threads=64; thread_pool b threads=200 max_queue=0;", 264),
        ("thread_pool a threads=many;", 0),
        ("thread_pool a threads=999999999999999999999999;", 2048),
    ):
        tree = parse_text(f"{pools} events {{ }}", file="/etc/nginx/nginx.conf")
        assert plan_view([tree], [], None, directory="/").threads == threads, pools


LAB = Lab(
    name="hdd",
    memory_bytes=192 << 20,
    disks=[LabDisk(name="d", mount="/srv/d", bytes_per_second=80 << 20, reads_per_second=400)],
)


def test_the_emulated_host_is_its_limits() -> None:
    real = Facts(cpu=Cpu(online=2), memory=Memory(total_bytes=24 << 30, available_bytes=20 << 30))
    facts = emulate(real, LAB, cpus=1)
    assert facts.memory.page_cache_limit_bytes == 192 << 20
    assert facts.cpu.effective == 1.0
    assert facts.storage.independent_disk_count == 1
    curve = facts.storage.disks[0].curve
    assert curve is not None
    assert curve.sequential_bytes_per_second == 80 << 20
    assert curve.provenance == "declared"


def test_a_link_of_the_lab_is_one_of_its_host() -> None:
    lab = Lab(name="l", topology="link", link=LabLink(bits_per_second=200_000_000))
    assert [x.speed_bits_per_second for x in emulate(Facts(), lab, cpus=1).network.links] == [2e8]
    assert emulate(Facts(), LAB, cpus=1).network.links == []
