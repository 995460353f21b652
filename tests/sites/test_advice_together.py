"""What the rules ask for goes together, on ordinary sites and in their own examples."""

import re
from itertools import combinations, product
from pathlib import Path

import pytest
from rows import each_row
from site_trees import lay_out, names

from nginx_tune.audit.context import AuditProfile
from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, linux
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.tree import parse_text, read_tree
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.host.live import LiveHost

EVERY = (*ALL, *NOTICES)
HOSTS: dict[str, Facts | None] = {
    "no-facts": None,
    "debian-12": linux(version="1.22.1"),
    "old": linux(version="1.18.0", cpus=1, cache_gib=1),
    "newest": linux(
        version="1.30.6", cpus=64, cache_gib=200,
        datasets={"/srv/media": (4000, 0.05), "/srv/www": (2, 1.0)},
        disks={"/srv/media": ("sda", "hdd"), "/srv/www": ("nvme0n1", "nvme")},
    ),
}  # fmt: skip
PROFILES: tuple[AuditProfile, ...] = ("default", "strict", "cis")


@pytest.mark.long
@each_row("name", names)
def test_a_site_gets_no_opposite_advice(name: str, tmp_path: Path) -> None:
    """Which findings are right for it stands in its ``site.toml``."""
    tree = read_tree(str(lay_out(name, tmp_path / "host")), LiveHost())
    for facts, profile in product(HOSTS.values(), PROFILES):
        found = audit(tree, facts, EVERY, profile=profile)
        assert found.files_unparsed == []
        assert _opposites(found) == []
        _edits_go_together(found)
        if profile == "default":
            assert encode(found) == encode(audit(tree, facts, EVERY))


def _told(one: Finding) -> str:
    return f"{one.rule}:{one.line}: {one.message}"


SWITCH = re.compile(r"\b([a-z_]+) (on|off|none|[0-9]+[kKmMgGsdh]?)(?=[;,. )]|$)")
DROP = re.compile(r"\b(?:[Rr]emove|[Dd]rop|[Tt]ake out|[Dd]elete) (?:the )?([a-z_0-9]+)\b")


def _asked(finding: Finding) -> tuple[dict[str, str], set[str]]:
    """The values a finding's fix gives to directives, and the directives it takes away."""
    values = {name: value for name, value in SWITCH.findall(finding.fix) if rows_of(name)}
    drops = {name for name in DROP.findall(finding.fix) if rows_of(name)}
    return values, drops


def _opposites(found: Findings) -> list[str]:
    """Pairs of rules of which one asks for what the other takes away, in one place."""
    pairs = []
    for first, second in combinations(found.findings, 2):
        if first.rule == second.rule or (first.file, first.line) != (second.file, second.line):
            continue
        (values, drops), (others, other_drops) = _asked(first), _asked(second)
        pairs += [
            f"{first.rule} and {second.rule}: {name} on and off"
            for name in values.keys() & others.keys()
            if {values[name], others[name]} == {"on", "off"}
        ]
        pairs += [
            f"{first.rule} and {second.rule}: {name} and none"
            for name in (values.keys() & other_drops) | (others.keys() & drops)
            if {values.get(name), others.get(name)} != {None, "off"}
        ]
    return pairs


@each_row("rule", ALL, ids=lambda rule: rule.id)
def test_the_rules_examples_bring_no_opposite_advice(rule: Rule) -> None:
    """In the profile that has what the others have."""
    for example in (rule.bad, rule.good):
        found = audit(parse_text(example.conf), example.facts, EVERY, profile="strict")
        assert _opposites(found) == []
        _edits_go_together(found)


def _edits_go_together(found: Findings) -> None:
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for finding in found.findings:
        for edit in finding.edits:
            spans.setdefault(edit.file, []).append((edit.start_byte, edit.end_byte, edit.text))
    for edits in spans.values():
        for (start, end, text), (next_start, next_end, next_text) in combinations(
            sorted(set(edits)), 2
        ):
            assert end < next_start or (start == end == next_start == next_end) or (
                text == next_text and (start, end) == (next_start, next_end)
            )  # fmt: skip


@pytest.mark.needs("nginx")
def test_debians_own_tree_has_no_error() -> None:
    found = audit(read_tree("/etc/nginx/nginx.conf", LiveHost()), linux(version="1.22.1"), EVERY)
    assert [_told(one) for one in found.findings if one.severity == "error"] == []
    assert not [one for one in found.findings if one.rule.startswith("cf-")]
