"""Plan, recommend and audit say one thing of a tree: laws over trees and hosts drawn at random."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawn_trees import drawn_host, drawn_tree
from msgspec.structs import replace
from situations import GIBIBYTE, MEBIBYTE, dataset, host, without_break_evens
from tiers import REPEAT, dice, draws

from nginx_tune.audit.registry import ALL
from nginx_tune.change.plan.solver import Solver, kind_in, roots_in, site_in
from nginx_tune.cli.deciding import Held, Inputs
from nginx_tune.cli.plan import Made, audited, settle_choice
from nginx_tune.conf.tree import parse_text
from nginx_tune.conf.values import is_alike
from nginx_tune.decide import engine
from nginx_tune.decide.answer import ALL_AS_DECIDED, Pinned
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts, Limits
from nginx_tune.documents.findings import Finding
from nginx_tune.documents.plan import Hunk
from nginx_tune.documents.site import Site

COUNT = draws(30, 1000)
ONE_FAULT = {
    "lim-conn-exceeds-rlimit": "lim-nofile-lt-2x",
    "io-open-cache-fd-budget": "lim-nofile-lt-2x",
    "lim-nofile-not-raisable": "lim-nofile-lt-2x",
}
"""Degrees of one fault: a plan that cannot cure it lessens it."""
COMES_WITH_WORKERS = {"lim-conn-memory", "lim-zone-too-small", "up-keepalive-1297-change"}
"""More workers of so many connections each as the operator wrote; told in the plan's ``brings``."""
SAID_BY = {
    "accept": {"ls-multi-accept", "ls-accept-mutex-redundant"},
    "file-limits": {
        "lim-nofile-lt-2x", "lim-conn-exceeds-rlimit", "io-open-cache-fd-budget",
        "lim-nofile-not-raisable",
    },
    "thread-pools": {"io-no-pool-cold-dataset", "io-pool-cached-dataset"},
    "sendfile": {
        "io-sendfile-off-static", "io-sendfile-shared-folder", "io-sendfile-threads-h2c",
        "io-no-pool-cold-dataset",
    },
    "cache-layout": {"ca-no-max-size", "ca-keys-zone-small", "ca-temp-other-fs"},
    "upstream-keepalive": {
        "up-keepalive-missing", "up-keepalive-http10", "up-zone-missing",
        "up-keepalive-1297-change",
    },
    "access-log": {"log-unbuffered-hot", "log-buffer-pipe", "log-buffer-no-flush"},
}  # fmt: skip
"""Decisions of whose lines an operator expects the audit to speak, with the rules: a finding, or
the facts that the rule lacks. Not so numbers that are only larger or smaller than what stands
(several workers, connections, chunk, buffers), nor HTTP/2, which nobody has to speak."""


OF_NUMBERS = {"accept", "file-limits"}
"""Those that more workers, connections or open files may ask for."""


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with without_break_evens():
        yield


def held_of(text: str, facts: Facts, path: str) -> Held:
    """As ``plan`` and ``recommend -c`` read it."""
    tree = parse_text(text, file=path)
    found = kind_in(tree)
    kind = "static" if found is None else found.kind
    site = site_in(tree, Site())
    site = complete_site(replace(site, roots=roots_in(tree) or site.roots), facts, kind)
    workload = workload_for(kind, facts, None, site=site)

    def made(stays: Pinned) -> Decisions:
        return engine.decide(facts, workload, site=site, stays=stays)

    settled = Solver(made, tree, facts).begin(made(ALL_AS_DECIDED))
    inputs = Inputs(kind, facts, workload, site, site, settled.decided, made)
    return Held(inputs, tree, settled.held, settled.stays)


def hunks(made: Made) -> list[Hunk]:
    return [hunk for file in made.changes.files for hunk in file.hunks]


def heeded(findings: list[Finding]) -> Counter[str]:
    """Findings by rule; those of one fault count as one."""
    found = Counter(one.rule for one in findings if one.severity != "info")
    lessened = {ONE_FAULT.get(rule, rule) for rule in found} & {*ONE_FAULT.values()}
    others = {rule: n for rule, n in found.items() if ONE_FAULT.get(rule, rule) not in lessened}
    return Counter({**others, **dict.fromkeys(lessened, 1)})


def says_nothing_new(hunk: Hunk) -> bool:
    before, after = hunk.before.rstrip(";").split(), hunk.after.rstrip(";").split()
    return len(before) == len(after) > 1 and all(map(is_alike, before, after))


MORE_CONNECTIONS = """worker_rlimit_nofile 65535;
events { worker_connections 65535; }
http {
    sendfile on;
    open_file_cache max=1000;
    access_log off;
    server { listen 80; location / { root /srv/1; } }
}
"""
"""More connections than are decided, which leave a cache of open files no descriptors."""
LITTLE_MEMORY = host(
    memory_bytes=GIBIBYTE,
    datasets=[dataset(20 * GIBIBYTE, MEBIBYTE)],
    limits=Limits(nofile_soft=65536, nofile_hard=65536, nr_open=1 << 20),
)
"""A host on which such a cache pays."""
NOT_RAISABLE = host(
    limits=Limits(
        nofile_of="nginx", nofile_soft=1024, nofile_hard=20000, nr_open=1 << 20, can_raise=False
    )
)
"""A host on which nginx cannot set the limit of that tree."""


def test_plan_recommend_and_audit_agree(tmp_path: Path) -> None:
    rng, broken, changed = dice("laws of trees"), list[str](), Counter[str]()
    trees = [(drawn_tree(rng), drawn_host(rng)) for _ in range(COUNT)]
    for number, (text, facts) in enumerate(
        [*trees, (MORE_CONNECTIONS, LITTLE_MEMORY), (MORE_CONNECTIONS, NOT_RAISABLE)]
    ):
        path = tmp_path / f"{number}.conf"
        path.write_text(text, encoding="utf-8")
        made = settle_choice(held_of(text, facts, str(path)), (), (), annotates=False)
        changed.update(hunk.decision for hunk in hunks(made))
        broken += [f"tree {number}: {why}" for why in _broken(made, text, facts, str(path))]
    assert not broken, "\n".join([f"{REPEAT}: {len(broken)} in {COUNT} trees", *broken[:20]])
    assert {"file-limits", "sendfile", "accept", "workers"} <= {*changed}, "nothing was held"


def _broken(made: Made, text: str, facts: Facts, path: str) -> Iterator[str]:
    written = hunks(made)
    yield from (f"nil: {one.before} -> {one.after}" for one in written if says_nothing_new(one))
    yield from (f"refused: {one}" for one in made.changes.refusals if "no place" in one.reason)
    stated = {
        " ".join([one.directive, *one.args])
        for decision in made.held.decisions.decisions
        for one in decision.settings
        if one.directive in ("worker_connections", "worker_rlimit_nofile", "keepalive")
    }
    for one in written:
        words = one.after.strip().rstrip(";")
        if words.split(" ")[0] in {each.split(" ")[0] for each in stated}:
            yield from () if words in stated else (f"plan {words}, recommend {stated}",)
    before = audited(made.held.tree, made.held, ALL)
    said = {each.rule for each in before.findings} | {each.rule for each in before.needs_facts}
    more = {"connections", "workers", "open-file-cache"}
    is_for_more = any(each.decision in more for each in written)
    for one in written:
        rules = SAID_BY.get(one.decision, set())
        stands_alone = one.decision not in OF_NUMBERS or (one.before.strip() and not is_for_more)
        if rules and stands_alone and not rules & said:
            yield f"audit is silent of {one.decision}: {one.before} -> {one.after}"
    if not made.changes.files:
        return
    new = made.changes.files[0].content.decode()
    again = settle_choice(held_of(new, facts, path), (), (), annotates=False)
    yield from (f"again: {one.before} -> {one.after}" for one in hunks(again))
    after = audited(parse_text(new, file=path), made.held, ALL).findings
    found = heeded(after) - heeded(before.findings)
    yield from (f"new: {one}" for one in found if one not in COMES_WITH_WORKERS)
