"""What the screen of a host says beside the usual."""

from __future__ import annotations

from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import (
    Dataset,
    Disk,
    ErrorLog,
    Facts,
    Instance,
    Limits,
    Link,
    Memory,
    Network,
    Nginx,
    Residency,
    Running,
    Storage,
    Throttled,
    Worker,
)
from nginx_tune.report.facts import render_facts


def _screen(**parts: object) -> str:
    return render_facts(replace(Facts(), **parts)).decode()


def test_a_limit_of_the_page_cache_has_its_reason_where_it_is_not_what_is_available() -> None:
    memory = Memory(available_bytes=9 << 30, page_cache_limit_bytes=2 << 30,
                    page_cache_limit_reason="memory.max of /a")  # fmt: skip
    assert "page cache can hold 2.0 GiB (memory.max of /a)" in _screen(memory=memory)
    usual = replace(memory, page_cache_limit_bytes=9 << 30)
    assert "memory.max" not in _screen(memory=usual)


def test_queues_and_paths_of_a_disk_the_driver_of_a_link_and_the_limit_of_all() -> None:
    disk = Disk(name="nvme0n1", depth=4092, hardware_queues=4, nr_requests=1023, paths=["a", "b"])
    screen = _screen(
        storage=Storage(disks=[disk]),
        network=Network(links=[Link(name="eth0", kind="physical", driver="ena")]),
        limits=Limits(nofile_soft=1, nofile_hard=2, nr_open=3, file_max=4000),
    )
    assert "depth 4092, 4 queues of 1023, by 2 paths" in screen
    assert "physical ena" in screen
    assert "fs.nr_open 3, 4000 for all processes" in screen
    assert "for all" not in _screen(limits=Limits(file_max=2**63 - 1))


def test_a_sampled_dataset_says_of_what_it_tells() -> None:
    residency = Residency(ratio=0.5, method="cachestat", trusted=True, coverage_ratio=0.2)
    dataset = Dataset(path="/d", files=9, bytes=9, sample_ratio=0.05, bytes_error_ratio=0.1,
                      residency=residency)  # fmt: skip
    screen = _screen(datasets=[dataset])
    assert "(of 5 % of the files)" in screen
    assert "asked about 20 % of it" in screen
    whole = replace(dataset, sample_ratio=1.0, residency=replace(residency, coverage_ratio=1.0))
    assert "asked about" not in _screen(datasets=[whole])


def test_every_master_stands_on_the_screen_once() -> None:
    others = [Instance(pid=n, binary="/o/nginx", conf_path="/o/c") for n in range(2, 14)]
    running = Running(pid=1, workers=[Worker(pid=9, user_id=33, capabilities=["cap_net_raw"])])
    nginx = Nginx(product="nginx", version="1.26.3", nginx_version="1.26.3", running=running,
                  instances=[Instance(pid=1), *others])  # fmt: skip
    screen = _screen(nginx=nginx)
    assert "also: master 2, 0 workers, /o/nginx -c /o/c" in screen
    assert "master 13," not in screen
    assert "and 4 more" in screen
    assert "workers keep cap_net_raw" in screen
    idle = replace(nginx, running=None, pid_path="/run/nginx.pid", instances=[])
    assert "not running; its pid file is /run/nginx.pid" in _screen(nginx=idle)


@each_row(
    ("log", "fact"),
    [
        (ErrorLog(path="/e"), "overflow lines in /e"),
        (ErrorLog(path="/e", complete=False, bytes_read=64 << 20),
         "overflow lines in the last 64 MiB of /e"),
    ],
)  # fmt: skip
def test_evidence_of_a_log_says_that_only_its_end_was_read(log: ErrorLog, fact: str) -> None:
    conf = "error_log /e; thread_pool p threads=2; events {} http { server { aio threads=p; } }"
    facts = replace(linux(), error_logs=[replace(log, pool_overflow={"p": 3})])
    found = audit(parse_text(conf), facts, ALL).findings
    assert fact in {one.fact for finding in found for one in finding.evidence}


def test_what_was_held_back_for_less_than_ten_seconds_tells_nothing() -> None:
    held = Throttled(directory="/", periods=99, throttled_periods=99, throttled_seconds=1.0)
    assert held.ratio is None
    assert replace(held, periods=198).ratio == 0.5


@each_row(("workers", "fires"), [("16", True), ("4", False), ("auto", False)])
def test_a_quota_is_held_against_workers_by_number(workers: str, fires: bool) -> None:
    held = Throttled(directory="/", periods=1000, throttled_periods=10, throttled_seconds=1.0)
    facts = linux(cpus=64, effective_cpus=4.0)
    facts = replace(facts, cpu=replace(facts.cpu, throttled=held))
    tree = parse_text(f"worker_processes {workers}; events {{}} http {{}}")
    rules = {one.rule for one in audit(tree, facts, ALL).findings}
    assert ("lim-workers-throttled" in rules) is fires
