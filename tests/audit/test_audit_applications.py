"""Right configurations: nginx accepts them, we call nothing in them an error, and what the rules
ask for goes together."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from needs import lacks
from nginx_versions import installed
from rows import each_row
from test_audit_examples import refusal

from nginx_tune.audit.context import AuditProfile
from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, linux
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.tree import ConfTree, parse_text, read_tree
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Finding, Findings
from nginx_tune.experiment.trial import try_configuration
from nginx_tune.host.live import LiveHost

FOLDER = Path(__file__).parent.parent / "conf" / "applications"
CONFS = sorted(FOLDER.glob("*.conf"))


def _stem(path: Path) -> str:
    return path.stem


EACH = each_row("path", CONFS, ids=_stem)
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


def _tree(path: Path) -> ConfTree:
    return read_tree(str(path), LiveHost())


@pytest.mark.needs("packaged-nginx", "nginx", "root", "openssl")
@each_row("path", lambda: _with_modules(loads=False), ids=_stem)
def test_the_real_nginx_accepts_it(path: Path, certificate: tuple[Path, Path]) -> None:
    with _laid_out(path, certificate) as conf:
        assert refusal(conf, installed()) == ""


@pytest.mark.thorough
@pytest.mark.needs("packaged-nginx", "nginx", "userns", "openssl")
@each_row("path", lambda: _with_modules(loads=False), ids=_stem)
def test_the_sandbox_has_it_accepted_too(path: Path, certificate: tuple[Path, Path]) -> None:
    with _laid_out(path, certificate) as conf:
        said = try_configuration("/usr/sbin/nginx", str(conf), prefix=None, replaced={})
    assert said.accepted, said.messages


@pytest.mark.needs("packaged-nginx", "nginx", "root", "openssl")
@each_row("path", lambda: _with_modules(loads=True), ids=_stem)
def test_the_real_nginx_accepts_it_with_its_modules(
    path: Path, certificate: tuple[Path, Path]
) -> None:
    with _laid_out(path, certificate) as conf:
        said = refusal(conf, installed())
    if "dlopen()" in said:
        lacks("nginx-modules", f"what {path.name} loads is not installed")
    assert said == ""


def _with_modules(*, loads: bool) -> list[Path]:
    return [path for path in CONFS if ("load_module" in path.read_text()) is loads]


@contextmanager
def _laid_out(path: Path, certificate: tuple[Path, Path]) -> Iterator[Path]:
    """It, with the files that it names."""
    with TemporaryDirectory() as name:  # the path of a socket is short
        directory = Path(name)
        shutil.copytree(FOLDER / "parts", directory / "parts")
        for disk in ("disk1", "disk2"):
            (directory / disk).mkdir()
        conf = directory / path.name
        # Files that another user left in /tmp are not root's to write (fs.protected_regular).
        text = path.read_text().replace("/tmp/", f"{directory}/")
        cert, key = certificate
        for word, value in (("CERT", cert), ("KEY", key), ("CACHE", directory)):
            text = re.sub(rf"\b{word}\b", str(value), text)
        conf.write_text(text)
        yield conf


@pytest.mark.long
@EACH
def test_no_error_is_found_in_it_and_nothing_opposite_is_asked_for(path: Path) -> None:
    for (name, facts), profile in product(HOSTS.items(), PROFILES):
        found = audit(_tree(path), facts, EVERY, profile=profile)
        assert found.files_unparsed == []
        if name != "old" or path.stem == "wordpress":  # 1.18 lacks directives that the others use
            assert [_told(one) for one in found.findings if one.severity == "error"] == []
            assert not [one for one in found.findings if one.rule.startswith("cf-")]
        assert _opposites(found) == []
        _edits_go_together(found)
        if profile == "default":
            assert encode(found) == encode(audit(_tree(path), facts, EVERY))


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
