"""A host in one line or in a short file: the decisions of its facts, and every figure declared."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest
from recorded_hosts import facts_file
from rows import each_row
from situations import decide_without_break_evens

from nginx_tune.cli.described import described_inputs, read_described
from nginx_tune.cli.options import KINDS
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.described import described_facts, described_workload
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.base import decode, decode_tables
from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.described_host import DescribedHost, parse_size
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind
from nginx_tune.errors import UsageError
from nginx_tune.report.facts import render_host_toml

Run = Callable[..., "CompletedProcess[str]"]
FACTS = facts_file("three-disk-node")


def decided(kind: Kind, disks: str = "", site: Site | None = None, **words: Any) -> dict[str, str]:
    """Verdicts by decision for a host of a line, and of its main switches what they would write."""
    described = read_described(None, disks.split(), {"kind": kind, **words})
    facts, site, _ = described_inputs(described, site or Site(), kind)
    workload = described_workload(described)
    assert workload is not None
    found = decide_without_break_evens(facts, workload, site=site)
    for one in found.decisions:
        for evidence in one.evidence:
            assert evidence.provenance != "measured", (one.id, evidence)
    verdicts = {str(one.id): str(one.verdict) for one in found.decisions}
    return {**verdicts, "headline": found.headline}


LARGE = {"nginx_version": "1.26.3", "memory": "64G", "cpus": 16.0, "link": "10G"}


@each_row(
    ("kind", "disks", "words", "wanted"),
    [
        # Data beyond memory on hard disks: threads. Nobody says which URLs are on which disk.
        ("media", "hdd:4:8TB", {"data": "24TB", "mean_size": "4M"},
         {"thread-pools": "enable", "per-disk-pools": "disable", "sendfile": "enable"}),
        ("media", "hdd:1:8TB", {"data": "4TB", "mean_size": "4M"},
         {"thread-pools": "enable", "per-disk-pools": "not_applicable"}),
        # All of it in memory: nothing to wait for.
        ("static", "ssd:1:480GB", {"data": "1200M", "mean_size": "20K"},
         {"thread-pools": "disable", "sendfile": "enable"}),
        # A server of the network may stall, whatever its disks are.
        ("static", "nfs", {"data": "100GB", "mean_size": "100K"}, {"thread-pools": "enable"}),
        ("cache", "hdd:2:16TB", {"data": "30TB", "mean_size": "2M"},
         {"thread-pools": "enable", "per-disk-pools": "enable", "cache-layout": "set"}),
        ("proxy", "", {"mean_size": "4K"}, {"thread-pools": "not_applicable"}),
    ],
)  # fmt: skip
def test_a_line_gives_the_switches_of_its_kind(
    kind: Kind, disks: str, words: dict[str, str], wanted: dict[str, str]
) -> None:
    found = decided(kind, disks, **LARGE, **words)
    assert {name: found[name] for name in wanted} == wanted


@each_row("command", ["recommend", "generate", "check", "size"])
def test_a_line_gives_a_figure_with_its_range_and_basis(run_cli: Run, command: str) -> None:
    line = "--cpus 16 --memory 64G --disk hdd:4:8TB --data 24TB --mean-size 4M --link 10G"
    done = run_cli(command, *line.split(), "--nginx-version", "1.26.3", "--kind", "media")
    assert done.returncode == 0, done.stderr
    first = next(text for text in done.stdout.splitlines() if "[" in text)
    assert re.search(r"\d+(/s| requests/s) \[\d+ – \d+\]", first), first
    basis = done.stdout if command == "size" else first
    assert "the CPU time of a request are only assumed" in basis or "assumed  " in basis


def test_what_is_not_said_is_not_known() -> None:
    described = read_described(None, ["nvme:2"], {"cpus": 8.0})
    facts, site, notes = described_inputs(described, Site(), "media")
    assert facts.declared is True
    assert facts.memory.total_bytes is facts.memory.page_cache_limit_bytes is None
    assert {one.path for one in facts.unknown} == {
        "/memory/page_cache_limit_bytes", "/network/links", "/nginx/nginx_version",
    }  # fmt: skip
    words = ("--memory", "--link", "--data", "--mean-size")
    assert any(all(word in note for word in words) for note in notes)
    # Two disks are two file systems, and it is said; the site has their directories.
    assert any(site.roots[0] in note for note in notes)
    assert [one.leaf_disks for one in facts.storage.paths] == [["disk1"], ["disk2"]]
    assert site.roots == [one.path for one in facts.storage.paths]


@each_row(
    ("roots", "disks"),
    [
        (["/a", "/b"], [["disk1"], ["disk2"]]),
        (["/a"], [["disk1", "disk2"]]),
        (["/a", "/b", "/c"], [[], [], []]),
    ],
)
def test_disks_lie_under_the_directories_of_the_site(
    roots: list[str], disks: list[list[str]]
) -> None:
    described = read_described(None, ["hdd:2"], {})
    facts, _, notes = described_inputs(described, Site(roots=roots), "static")
    assert [one.leaf_disks for one in facts.storage.paths] == disks
    assert any("under which" in note for note in notes) == (disks[0] == [])


@each_row(
    ("text", "size"),
    [("16G", 16 << 30), ("16GiB", 16 << 30), ("3.84TB", 3_840_000_000_000), ("512k", 512 << 10),
     (4096, 4096), ("100 MB", 100_000_000)],
)  # fmt: skip
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text, "x") == size


@each_row("text", ["", "0", "-1G", "G", "1e3", "16X", "9999999P", "१G"])
def test_what_is_no_size_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(UsageError, match="memory"):
        parse_size(text, "memory")


@each_row(
    ("line", "said"),
    [
        ("--disk hdx", "did you mean hdd?"),
        ("--disk hdd:0", "KIND[:COUNT[:SIZE]]"),
        ("--disk gp3,fast", "not READS"),
        ("--memory much", "memory much: not a size"),
        ("--memory 16", "memory 16: only 16 bytes (give a unit, such as 16G)"),
        ("--disk hdd:2:4", "disk hdd: size 4: only 4 bytes (give a unit, such as 16G)"),
        ("--link fast", "link 'fast'"),
        ("--link 10", "link '10': only 10 bits/s (give a unit, such as 10G)"),
        ("--objective 'hot.errors == 0'", "not an upper limit on the time"),
        ("--cpus 8 --rate 8G", "a bandwidth such as 8Gbit/s"),
        (f"--cpus 8 --facts {FACTS}", "a described host exclude each other"),
        ("--cpus 8 --dataset /usr", "--dataset scans this host"),
        ("--disk hdd:4:8TB --data 40TB", "the 4 disks hold 29.1 TiB"),
        ("--cpus 8 --data 1G --mean-size 2G", "more than all of the data"),
        ("--host /dev/null", "describes no host"),
    ],
)
def test_a_wrong_line_is_one_line(run_cli: Run, line: str, said: str) -> None:
    done = run_cli("recommend", *shlex.split(line))
    assert done.returncode == 2, done
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


HOST = """
cpus = 4
memory = "16G"
nginx_version = "1.26.3"
kind = "static"
clients = 300

[[disks]]
kind = "gp3,6000,250m"
size = "500G"

[[directories]]
path = "/srv/www"
bytes = "180G"
files = 3_000_000
"""


def test_a_file_holds_more_and_options_add_to_it(run_cli: Run, tmp_path: Path) -> None:
    file = tmp_path / "host.toml"
    file.write_text(HOST)
    done = run_cli("recommend", "--host", str(file), "--link", "5G", "-f", "json")
    assert done.returncode == 0, done.stderr
    evidence = {
        one["fact"]: (one["value"], one["provenance"])
        for decision in json.loads(done.stdout)["decisions"]
        for one in decision["evidence"]
    }
    assert evidence["workload.concurrency"] == (300, "declared")
    assert evidence["workload.dataset.bytes"] == (180 << 30, "declared")
    assert evidence["network.links speed"] == (625_000_000, "declared")
    # Said twice, it is nobody's.
    twice = run_cli("recommend", "--host", str(file), "--cpus", "8")
    assert (twice.returncode, twice.stderr.count("\n")) == (2, 1)
    assert "--cpus" in twice.stderr


JUDGED = msgspec.toml.decode(Path(__file__).with_name("described-hosts.toml").read_bytes())
_NUMBERED = re.compile(r"\b(pool|cache|disk|sd)_?\d+")
_DIRECTORY = re.compile(r"(/cache|/data|/v)/\w+")


def written_lines(host: dict[str, Any], site: dict[str, Any]) -> set[str]:
    """What ``generate`` writes by its decisions, and asks of the host, without numbers of names."""
    described = decode_tables(DescribedHost, host, "host")
    kind: Kind = described.kind or "static"
    facts, found, _ = described_inputs(described, decode_tables(Site, site, "site"), kind)
    given = described_workload(described)
    found = complete_site(found, facts, kind, given)
    workload = workload_for(kind, facts, given, site=found)
    lines = set()
    for one in decide_without_break_evens(facts, workload, site=found).decisions:
        lines |= {
            f"{one.id}: {' '.join([line.directive, *(arg or _EMPTY for arg in line.args)])}"
            for line in one.settings
        }
        lines |= {f"{one.id}: host: {x.kind} {x.name} {x.value}" for x in one.host_settings}
    return {_DIRECTORY.sub(r"\1/*", _NUMBERED.sub(r"\1_*", line)) for line in lines}


_EMPTY = '""'


@pytest.mark.long
@each_row("one", JUDGED["hosts"], ids=lambda one: one["name"])
def test_each_line_for_a_described_host_is_judged(one: dict[str, Any]) -> None:
    assert written_lines(one["host"], one.get("site", {})) == {*one["needed"], *one["harmless"]}


def test_each_judgement_of_a_line_has_its_reason() -> None:
    lines = [line for one in JUDGED["hosts"] for line in (*one["needed"], *one["harmless"])]
    of_lines = {" ".join(line.split()[:2]).removesuffix(":") for line in lines}
    assert of_lines == {*JUDGED["reasons"]}


MACHINES = sorted((FACTS.parent).glob("*.facts.json"))


@each_row("path", MACHINES)
def test_a_host_in_short_gives_the_decisions_of_its_facts(path: Path) -> None:
    """``inspect -f toml`` and back: verdicts, what is written and proposed, and of the host."""
    facts = decode(Facts, path.read_bytes())
    tables = msgspec.toml.decode(render_host_toml(facts).decode())
    again = described_facts(decode_tables(DescribedHost, tables, "host.toml"))
    for kind in KINDS[::2]:
        site = Site(roots=[one.path for one in facts.storage.paths][:2] or ["/srv"])
        assert answers(again, kind, site) == answers(facts, kind, site)


def answers(facts: Facts, kind: Kind, site: Site) -> dict[str, Any]:
    found = decide_without_break_evens(facts, workload_for(kind, facts, site=site), site=site)
    return {
        one.id: (one.verdict, _lines(one.settings), _lines(one.proposed), one.host_settings)
        for one in found.decisions
    }


def _lines(settings: Sequence[Setting]) -> list[tuple[str, ...]]:
    return [(one.context, one.block, one.directive, *one.args) for one in settings]


@each_row(
    ("old", "new", "said"),
    [
        ("memory =", "memmory =", "is memory meant?"),
        ("size =", "sise =", "disks[0] has no 'sise' (is size meant?)"),
        ("files =", "[facts.kernel]\nsistem = 1\n[[directories]]\npath = '/a'\nfiles =",
         "kernel has no 'sistem' (is system meant?)"),
        ("clients = 300", "clients = -1", "$.clients"),
    ],
)  # fmt: skip
def test_a_misspelt_word_of_a_file_is_refused(
    run_cli: Run, tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = tmp_path / "host.toml"
    file.write_text(HOST.replace(old, new, 1))
    done = run_cli("recommend", "--host", str(file))
    assert done.returncode == 2
    assert said in done.stderr
    assert str(file) in done.stderr
    assert done.stderr.count("\n") == 1


@each_row("command", ["generate", "plan CONF", "audit CONF", "check"])
def test_every_deciding_command_takes_a_described_host(
    run_cli: Run, tmp_path: Path, command: str
) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {}\nhttp { server { listen 80; location / { root /srv; } } }\n")
    name, *rest = command.replace("CONF", str(conf)).split()
    line = "--cpus 2 --memory 4G --disk hdd:1:4TB --data 1T --mean-size 4M --nginx-version 1.26.3"
    done = run_cli(name, *rest, *line.split())
    assert done.returncode in {0, 1}, done.stderr
    assert "(--link)" in done.stderr
    assert done.stdout
    # The demand is an input too, and the next command repeats it.
    wanted = run_cli(name, *rest, *line.split(), "--rate", "9", "--objective", "p99 <= 1s")
    assert wanted.returncode in {0, 1}, wanted.stderr
    if name == "check":
        assert "the load of 9 requests/s" in wanted.stdout
        assert "Within p99 <= 1s" in wanted.stdout
        assert "--rate 9 --objective 'p99 <= 1s'" in " ".join(wanted.stdout.split())
    if name in {"plan", "generate"}:
        assert "aio" in done.stdout


FULL = json.loads(FACTS.read_bytes())


@each_row(
    ("option", "document", "said"),
    [
        # People misspell: the object then lacks the word that is meant.
        ("--facts", {"schema": "nginx-tune/facts/1", "memmory": {}}, "is memory meant?"),
        ("--facts", {"schema": "nginx-tune/facts/1", "cpu": {"efective": 4}},
         "cpu has no 'efective' (is effective meant?)"),
        ("--workload", {"schema": "nginx-tune/workload/1", "rate": {"peak": 4}},
         "rate has no 'peak' (is peak_per_second meant?)"),
        ("--workload", {"schema": "nginx-tune/workload/1", "kinds": "media"}, "is kind meant?"),
        ("--site", {"schema": "nginx-tune/site/1", "listens": []}, "is listen meant?"),
    ],
)  # fmt: skip
def test_a_misspelt_word_of_a_document_is_refused(
    run_cli: Run, tmp_path: Path, option: str, document: dict[str, Any], said: str
) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps(document))
    done = run_cli("recommend", "--cpus", "2", option, str(file))
    if option == "--facts":
        done = run_cli("recommend", option, str(file))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@each_row(
    "change",
    [
        {"schema": "nginx-tune/facts/2"},
        {"schema": "nginx-tune/facts/1.4", "weather": "rain"},
        {"weather": "rain"},
        {"cpu": FULL["cpu"] | {"caches": 3}},
    ],
)
def test_a_document_of_a_newer_version_is_read_with_one_warning(
    run_cli: Run, tmp_path: Path, change: dict[str, Any]
) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(FULL | change))
    done = run_cli("recommend", "--facts", str(file), "-f", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("newer nginx-tune") == 1
    file.write_text(json.dumps(FULL | {"schema": "nginx-tune/facts/2", "cpu": "many"}))
    assert run_cli("recommend", "--facts", str(file)).returncode == 2, "what cannot be read is not"
    file.write_text(json.dumps(FULL | {"schema": "nginx-tune/facts/" + "9" * 5000}))
    refused = run_cli("recommend", "--facts", str(file))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), "no version is so long"


def test_an_audit_names_what_a_description_lacks_and_no_host_to_inspect(
    run_cli: Run, tmp_path: Path
) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {} http { server { listen 80; root /srv/www; } }")
    run = run_cli("audit", conf, "--cpus", "4", "-f", "json")
    hows = {one["how"] for one in json.loads(run.stdout)["needs_facts"]}
    assert len(hows) == 1
    assert next(iter(hows)).startswith("the description lacks ")
    assert "nginx-tune inspect" in run_cli("audit", conf).stdout
