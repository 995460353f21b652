"""What the screen of a host says beside the usual."""

from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import (
    Dataset,
    Facts,
    Instance,
    Memory,
    Nginx,
    Residency,
    Running,
    Throttled,
    Worker,
)
from nginx_tune.report.facts import facts_blocks
from nginx_tune.report.screen import plain_text


def _screen(**parts: object) -> str:
    return plain_text(facts_blocks(replace(Facts(), **parts)))


def test_a_limit_of_the_page_cache_has_its_reason_where_it_is_not_what_is_available() -> None:
    memory = Memory(available_bytes=9 << 30, page_cache_limit_bytes=2 << 30,
                    page_cache_limit_reason="memory.max of /a")  # fmt: skip
    assert "page cache can hold 2.0 GiB (memory.max of /a)" in _screen(memory=memory)
    usual = replace(memory, page_cache_limit_bytes=9 << 30)
    assert "memory.max" not in _screen(memory=usual)


def test_a_sampled_dataset_says_of_what_it_tells() -> None:
    residency = Residency(ratio=0.5, method="cachestat", trusted=True, coverage_ratio=0.2)
    dataset = Dataset(path="/d", files=9, bytes=9, sample_ratio=0.05, bytes_error_ratio=0.1,
                      residency=residency)  # fmt: skip
    screen = _screen(datasets=[dataset])
    assert "(of 5 % of the files)" in screen
    assert "measured for 20 % of it" in screen
    whole = replace(dataset, sample_ratio=1.0, residency=replace(residency, coverage_ratio=1.0))
    assert "measured for" not in _screen(datasets=[whole])


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


@each_row(("workers", "fires"), [("16", True), ("4", False), ("auto", False)])
def test_a_quota_is_held_against_workers_by_number(workers: str, fires: bool) -> None:
    held = Throttled(directory="/", periods=1000, throttled_periods=10, throttled_seconds=1.0)
    facts = linux(cpus=64, effective_cpus=4.0)
    facts = replace(facts, cpu=replace(facts.cpu, throttled=held))
    tree = parse_text(f"worker_processes {workers}; events {{}} http {{}}")
    rules = {one.rule for one in audit(tree, facts, ALL).findings}
    assert ("lim-workers-throttled" in rules) is fires
