"""Audit and recommend say one thing of one host: over hosts drawn at random."""

import json
from collections import Counter
from functools import cache
from itertools import starmap
from pathlib import Path
from random import Random

import msgspec
import pytest
from command_line import RunCli
from situations import (
    GIBIBYTE,
    MEBIBYTE,
    dataset,
    decide_without_break_evens,
    host,
    load,
    nginx,
    site,
)
from situations import decide_without_break_evens as decide
from test_law import MOST_IN_A_CHAIN, drawn
from tiers import REPEAT, dice, draws

from nginx_tune.audit.context import REFUSED, Decided
from nginx_tune.audit.engine import audit
from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import configured_case
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.answer import build_of
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Finding
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Workload

COUNT = draws(40, 1500)
ADDS = {
    "io-no-pool-cold-dataset": "aio threads",
    "io-open-blocking": "open_file_cache ",
    "io-aio-write-missing": "aio_write on",
    "io-tls-small-output-buffers": "output_buffers ",
    "io-pool-single-many-disks": "thread_pool pool_",
    "ls-reuseport-candidate": " reuseport",
}
"""What a rule asks for, as it stands in a generated file."""
PASSED_OVER = {"ls-reuseport-old-bugs", "vr-known-vulnerability"}
"""Rules that no line cures: where not to run nginx -t, and what the version itself has."""


FOUND = {"20261130 audit agrees": 630, "20261201 audit agrees": 1083}
"""Hosts that failed, as seed and number: one had a smaller pool while ``aio threads`` was only
proposed, the other had threads while the pools of its disks were only proposed."""


def _found(seed: str, number: int) -> tuple[Facts, Workload, Site]:
    rng = Random(seed)
    return [drawn(rng) for _ in range(number + 1)][-1]


@cache
def situations() -> list[tuple[int, Facts, Site, Decisions]]:
    """Drawn hosts whose sites can be generated, with what is decided for them."""
    rng, found = dice("audit agrees"), []
    hosts = [drawn(rng) for _ in range(COUNT)]
    for number, (facts, workload, given) in enumerate([*hosts, *starmap(_found, FOUND.items())]):
        if len(given.roots) > MOST_IN_A_CHAIN and not given.root_prefixes:
            continue
        complete = complete_site(given, facts, workload.kind)
        decisions = decide_without_break_evens(facts, workload, site=complete)
        found.append((number, facts, complete, decisions))
    return found


def heeded(finding: Finding) -> bool:
    """Whether somebody is asked to act."""
    return finding.severity != "info"


@pytest.mark.long
def test_nothing_that_was_generated_is_found_fault_with() -> None:
    found: list[str] = []
    for number, facts, given, decisions in situations():
        text = emit_decided(decisions, given, status_page=build_of(facts.nginx).at_least(1, 7, 5))
        findings = audit(parse_text(text), facts, decide=lambda d=decisions: d).findings  # type: ignore[misc]
        found += [
            f"host {number}: {one.rule}: {one.message}"
            for one in findings
            if heeded(one) and one.rule not in PASSED_OVER
        ]
    assert not found, "\n".join([REPEAT, *found[:20]])


def test_a_plan_of_what_was_generated_is_empty() -> None:
    found: list[str] = []
    for number, facts, given, decisions in situations():
        text = emit_decided(decisions, given, status_page=build_of(facts.nginx).at_least(1, 7, 5))
        held = as_changes(decisions, parse_text(text)).decisions
        found += [
            f"host {number}: {one.directive} {' '.join(one.args)}"
            for decision in held
            for one in decision.settings
        ]
    assert not found, "\n".join([REPEAT, *found[:20]])


def test_audit_asks_a_stock_configuration_for_nothing_that_is_not_generated() -> None:
    found: list[str] = []
    asked: Counter[str] = Counter()
    for number, facts, given, decisions in situations():
        text = emit_decided(decisions, given, status_page=build_of(facts.nginx).at_least(1, 7, 5))
        findings = audit(parse_text(stock(given)), facts, decide=lambda d=decisions: d).findings  # type: ignore[misc]
        for one in filter(heeded, findings):
            if one.rule in ADDS:
                asked[one.rule] += 1
            if one.rule in ADDS and ADDS[one.rule] not in text:
                found.append(f"host {number}: {one.rule}: {one.message}")
    assert not found, "\n".join([REPEAT, *found[:20]])
    assert asked, f"{REPEAT}: no advice at all, nothing was held"


def stock(given: Site) -> str:
    """nginx as a distribution has it, for the same directories."""
    if given.cache_dirs:
        caches = " ".join(
            f"proxy_cache_path {path} keys_zone=c{number}:10m;"
            for number, path in enumerate(given.cache_dirs)
        )
        body = "location / { proxy_pass http://127.0.0.1:8080; proxy_cache c0; }"
    else:
        caches = ""
        body = " ".join(f"location /{n}/ {{ root {path}; }}" for n, path in enumerate(given.roots))
    return (
        "worker_processes auto; events { worker_connections 768; } "
        f"http {{ sendfile on; {caches} server {{ listen 80; {body} }} }}"
    )


STOCK = "worker_processes auto; events {} http { server { listen 80; root /srv/1; } }"


def cold(disk_class: str) -> Facts:
    facts = host(disk_class=disk_class, memory_bytes=8 * GIBIBYTE)  # type: ignore[arg-type]
    return msgspec.structs.replace(facts, datasets=[dataset(64 * GIBIBYTE, 16 * MEBIBYTE)])


def rules(facts: Facts, decisions: Decisions | None) -> dict[str, str]:
    given = None if decisions is None else lambda: decisions
    found = audit(parse_text(STOCK), facts, decide=given).findings  # type: ignore[arg-type]
    return {one.rule: one.severity for one in found}


def test_what_pools_would_not_pay_for_is_not_asked_for() -> None:
    """NVMe behind 10 Gbit/s: data of eight times the memory, and reads that hold nobody up."""
    asked_seldom = load("static", data_bytes=64 * GIBIBYTE, file_bytes=16 * MEBIBYTE, rate=2.0)
    fast = cold("nvme")
    decisions = decide(fast, asked_seldom, site=site())
    assert decisions.decisions[0].verdict == "disable"
    assert "io-no-pool-cold-dataset" in rules(fast, None)
    assert "io-no-pool-cold-dataset" not in rules(fast, decisions)


def test_what_is_only_proposed_is_no_warning() -> None:
    slow = cold("hdd")
    assumed = decide(slow, Workload(), site=site())
    if assumed.decisions[0].verdict == "enable":
        assert rules(slow, assumed)["io-no-pool-cold-dataset"] == "warning"
    nobody_knows = [
        msgspec.structs.replace(d, verdict="not_enough_evidence", next_command="learn LOG")
        for d in assumed.decisions
    ]
    unsure = msgspec.structs.replace(assumed, decisions=nobody_knows)
    found = audit(parse_text(STOCK), slow, decide=lambda: unsure).findings
    one = next(f for f in found if f.rule == "io-no-pool-cold-dataset")
    assert one.severity == "info"
    assert "learn LOG" in one.fix


def test_what_is_decided_of_pools_is_found_without_a_scan() -> None:
    """By the decision: threads for what memory holds, and none for a cache that it does not."""
    slow = msgspec.structs.replace(host(page_cache_bytes=8 * GIBIBYTE), datasets=[])
    cached = (
        "events {} http { proxy_cache_path /srv/1 keys_zone=c:10m max_size=500g; server { "
        "location / { proxy_pass http://127.0.0.1:1; proxy_cache c; %s } } }"
    )
    threads = STOCK.replace("root /srv/1;", "root /srv/1; aio threads; %s")
    for text, aio, workload, rule, is_found in (
        (cached, "", load("cache", data_bytes=500 * GIBIBYTE), "io-no-pool-cold-dataset", True),
        (cached, "aio threads;", load("cache"), "io-no-pool-cold-dataset", False),
        (cached, "", load("cache", data_bytes=GIBIBYTE), "io-no-pool-cold-dataset", False),
        (threads, "", load(data_bytes=GIBIBYTE), "io-pool-cached-dataset", True),
        (threads, "directio 1m;", load(data_bytes=GIBIBYTE), "io-pool-cached-dataset", False),
        (threads, "", load(), "io-pool-cached-dataset", False),
    ):
        given = site(cache_dirs=["/srv/1"]) if text is cached else site()
        decisions = decide(slow, workload, site=complete_site(given, slow, workload.kind))
        found = audit(parse_text(text % aio), slow, decide=lambda d=decisions: d).findings  # type: ignore[misc]
        assert (rule in {one.rule for one in found}) is is_found, (text, aio)


def test_pools_of_connections_left_as_they_are_are_no_warning() -> None:
    """Of a peak that is only assumed no decision makes a number, and the audit asks for none."""
    facts = host(cpus=64, nginx=nginx("1.30.6"))
    text = STOCK.replace("root /srv/1;", "").replace(
        "server {", "upstream app { server 10.0.0.1; } server {"
        " location / { proxy_pass http://app; } location /b/ { proxy_pass http://app; }"
    )  # fmt: skip
    for peak, severity in ((None, "info"), (20_000.0, "warning")):
        workload = load("proxy", peak=peak) if peak else Workload(kind="proxy")
        decisions = decide(facts, workload, site=complete_site(site(), facts, "proxy"))
        found = audit(parse_text(text), facts, decide=lambda d=decisions: d).findings  # type: ignore[misc]
        said = {one.rule: one.severity for one in found}
        assert said["up-keepalive-1297-change"] == severity


def test_a_configuration_is_decided_on_by_what_it_serves() -> None:
    slow = cold("hdd")
    for text, kind in (
        (STOCK, "static"),
        ("events {} http { server { location / { proxy_pass http://127.0.0.1:1; } } }", "proxy"),
    ):
        assert configured_case(parse_text(text), slow).decide().kind == kind


def test_a_workload_has_the_audit_agree_with_recommend(run_cli: RunCli, tmp_path: Path) -> None:
    """By the facts alone reads would hold the loop; by what is asked for they hold nobody up."""
    conf, facts, asked = (tmp_path / name for name in ("n.conf", "f.json", "w.json"))
    conf.write_text(STOCK, encoding="utf-8")
    facts.write_bytes(encode(cold("hdd")))
    size = {"data_bytes": 64 * GIBIBYTE, "file_bytes": 16 * MEBIBYTE}
    seldom = load("static", rate=0.1, peak=1, **size)
    asked.write_bytes(encode(seldom))
    inputs = ["--facts", facts, "--workload", asked]
    decided = json.loads(run_cli("recommend", "-c", conf, *inputs, "-f", "json").stdout)
    (pools,) = (one for one in decided["decisions"] if one["id"] == "thread-pools")
    assert pools["verdict"] == "disable"
    for given, is_found in ((inputs[:2], True), (inputs, False)):
        found = json.loads(run_cli("audit", conf, *given, "-f", "json").stdout)
        said = {one["rule"] for one in found["findings"]}
        assert ("io-no-pool-cold-dataset" in said) is is_found


def test_decisions_are_made_once_and_only_when_a_rule_asks() -> None:
    asked = []

    def counted() -> Decisions:
        asked.append(1)
        return Decisions()

    decided = Decided(counted)
    assert not asked
    for name, _ in REFUSED.values():
        assert decided.on(name) is None
    assert len(asked) == 1
