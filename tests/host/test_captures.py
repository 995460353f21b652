"""Every recorded host gives the facts that were reviewed (``facts.txt``)."""

import json
import re
from collections.abc import Iterator
from typing import Any

from freebsd import freebsd
from machine import Machine
from machines import three_disk_node
from recorded_hosts import (
    BUILDERS,
    EXPECTED,
    NAMES,
    capture_bytes,
    distinct_facts,
    facts_bytes,
    read_capture,
)
from rows import each_row

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.inspection import Request
from nginx_tune.observe.inspect.inspection import inspect_host, record_host, replay


def all_facts() -> list[tuple[str, bytes]]:
    return [*((name, facts_bytes(name)) for name in NAMES), ("freebsd", encode(freebsd()))]


def test_the_recorded_hosts_give_the_facts_that_were_reviewed() -> None:
    """After a change that is meant: ``python tests/host/regenerate.py``."""
    assert distinct_facts().splitlines() == EXPECTED.read_text().splitlines()


@each_row("name", sorted(BUILDERS))
def test_a_machine_is_recorded_in_the_same_bytes_each_time(name: str) -> None:
    assert encode(record_host(*BUILDERS[name]())) == capture_bytes(name)


def nulls(value: Any, pointer: str = "") -> Iterator[str]:
    if value is None:
        yield pointer
    elif isinstance(value, dict):
        for key, part in value.items():
            escaped = key.replace("~", "~0").replace("/", "~1")
            yield from nulls(part, f"{pointer}/{escaped}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from nulls(part, f"{pointer}/{index}")


@each_row("name, document", all_facts, ids=lambda value: value if isinstance(value, str) else "")
def test_every_null_has_a_reason_and_facts_read_back_the_same(name: str, document: bytes) -> None:
    facts = json.loads(document)
    reasons = {entry["path"]: entry["reason"] for entry in facts.pop("unknown")}
    missing = set(nulls(facts)) - reasons.keys()
    assert not missing
    assert all(reasons.values())
    assert "the host does not report it" not in reasons.values(), "a reader forgot to say why"
    assert encode(decode(Facts, document)) == document, name


def test_the_cache_disks_are_found_without_being_named() -> None:
    machine, _ = three_disk_node()
    storage = inspect_host(machine, Request()).storage
    assert [path.path for path in storage.paths] == ["/cache/disk1", "/cache/disk2", "/cache/disk3"]
    assert [path.leaf_disks for path in storage.paths] == [["sda"], ["sdb"], ["sdc"]]
    assert storage.independent_disk_count == 3


def test_independent_disks_are_counted_over_the_given_paths() -> None:
    machine, _ = three_disk_node()
    storage = inspect_host(machine, Request(paths=["/cache/disk1/new/dir", "/srv"])).storage
    assert [path.leaf_disks for path in storage.paths[:2]] == [["sda"], ["sdd"]]
    assert storage.independent_disk_count == 2
    assert len(storage.paths) == 5


def test_a_limit_of_a_systemd_service_binds_its_nginx() -> None:
    facts = replay(read_capture("sata-ssd"))
    assert facts.memory.cgroup_limit_bytes == 2 << 30
    assert facts.memory.cgroup_limit_path == "/sys/fs/cgroup/system.slice/nginx.service"
    assert facts.cpu.effective == 4.0
    running = facts.nginx.running
    assert running is not None
    assert running.conf_path == "/etc/nginx/nginx-edge.conf"
    assert [worker.threads for worker in running.workers] == [33] * 8


def test_what_an_extra_request_asks_comes_on_top() -> None:
    facts = replay(read_capture("ebs-volume"), Request(link_speeds={"ens5": 10**9}))
    link = next(link for link in facts.network.links if link.name == "ens5")
    assert link.speed_bits_per_second == 10**9


@each_row("name", NAMES)
def test_captures_hold_no_secrets(name: str) -> None:
    text = capture_bytes(name).decode()
    assert "hunter2" not in text
    assert not re.search(r"10\.20\.0\.7|LVM-w|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-", text)


def test_names_that_are_no_utf8_are_shown_escaped() -> None:
    machine = Machine()
    machine.write("/proc/self/mountinfo", "28 1 8:1 / / rw - ext4 /dev/sda\udcff rw\n")
    machine.directories.add("/")
    facts = inspect_host(machine, Request())
    assert facts.storage.paths[0].source == "/dev/sda\\xff"
    assert encode(facts)
