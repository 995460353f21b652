"""Hunks are exact: a plan is told by itself from one that writes something else than it shows."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import tiers
from msgspec.structs import replace
from rows import each_row
from test_plan_changes import HOSTS, SITES, drawn, facts_of, planned, read, write
from test_plan_fixes import with_fixes

from nginx_tune.audit.registry import ALL
from nginx_tune.change.generate.plan_files import (
    HunkError,
    TracedFile,
    first_difference,
    old_content,
    planned_file,
)
from nginx_tune.cli.configurations import check_plan
from nginx_tune.conf.tree import ConfTree, ParsedFile, parse_text
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.plan import Hunk, Plan, PlannedFile
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles

TESTS = Path(__file__).resolve().parents[1]
CONFS = sorted(
    path
    for place in ("conf/valid", "audit/right", "../examples/copied-advice")
    for path in (TESTS / place).rglob("*.conf")
)


def parsed(text: str) -> ParsedFile:
    [file] = parse_text(text, file="/n.conf").parsed
    return file


def why(name: str) -> Hunk:
    return Hunk(line=0, before="", after="", decision=name)


def believed(tree: ConfTree, files: list[PlannedFile]) -> int:
    """How many hunks a plan of these files has, which is believed as it is read back."""
    plan = decode(Plan, encode(Plan(conf_path=tree.path, files=files)))
    here = check_plan(plan, "plan.json", ConfigurationFiles(LiveHost()))
    assert here == {one.path: one.sha256_before for one in files}
    for file in files:
        assert old_content(file) == Path(file.path).read_bytes()
    return sum(len(one.hunks) for one in files)


@pytest.mark.long
@each_row("path", CONFS, ids=lambda path: path.stem)
def test_a_plan_of_any_tree_here_is_believed(path: Path) -> None:
    """Made for this repository's own configurations, on drawn hosts."""
    dice = tiers.dice(f"a plan of {path.name}")
    tree = read(path, {})
    if tree.complete:
        kind = dice.choice(["static", "media", "proxy", "cache"])
        changes = planned(tree, facts_of(dice.choice(HOSTS)), kind, annotates=dice.random() < 0.5)
        assert believed(tree, changes.files) or not changes.files, tiers.REPEAT


@each_row("name", SITES)
def test_a_plan_of_any_shape_of_file_is_believed(name: str, tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": SITES[name]})
    assert believed(tree, planned(tree, facts_of("raid10-4hdd"), annotates=True).files)


@each_row("seed", range(tiers.draws(8, 80)))
def test_a_plan_with_fixes_of_the_audit_is_believed(seed: int, tmp_path: Path) -> None:
    dice = tiers.dice(f"fixes {seed}")
    rules = [one for one in ALL if one.fixes is not None]
    for number, rule in enumerate(dice.sample(rules, 2)):
        tree = write(tmp_path / str(number), {"nginx.conf": rule.bad.conf})
        changes, _ = with_fixes(tree, rule.bad.facts or facts_of("kvm-guest"))
        believed(tree, changes.files)
    tree = write(tmp_path / "drawn", drawn(seed))
    changes, _ = with_fixes(tree, facts_of(HOSTS[seed % len(HOSTS)]))
    assert believed(tree, changes.files)


def steps(dice: Random, data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(data) and dice.random() < 0.85:
        start = dice.randint(at, min(len(data), at + 12))
        end = min(len(data), start + dice.choice([0, 0, 1, 5]))
        text = dice.choice([b"", b"\n", b"new", b"\n    on;", b" off; ", "caf\u00e9".encode()])
        if start < end or text:
            yield start, end, text
        at = end + 1


@each_row("seed", range(tiers.draws(80, 5000)))
def test_changes_one_behind_the_other_make_hunks_that_give_the_old_file_back(seed: int) -> None:
    dice = tiers.dice(f"hunks {seed}")
    text = "events { a 1; }\nhttp {\n  sendfile on; # \u2603\n  server { listen 80 ssl; }\n}\n"
    text = text.replace("\n", dice.choice(["\n", "\r\n"])).rstrip("\n" * dice.randint(0, 1))
    file = parsed(text)
    traced, now = TracedFile(file.source.data), file.source.data
    for number in range(dice.randint(1, 4)):
        spans = list(steps(dice, now))
        for start, end, new in reversed(spans):
            now = now[:start] + new + now[end:]
        traced.change({span: [why(f"{number}-{nth}")] for nth, span in enumerate(spans)})
        assert traced.content == now
    made = planned_file(file, traced)
    assert old_content(made) == file.source.data, tiers.REPEAT
    again = TracedFile(file.source.data, made.hunks)
    assert again.content == now
    assert old_content(planned_file(file, again)) == file.source.data


def test_a_directive_changes_whole_and_with_all_that_ask_for_it() -> None:
    file = parsed("events {}\nhttp {\n    server { listen 80; root /srv; }\n}\n")
    at = file.source.data.index(b" 80;") + 3
    traced = TracedFile(file.source.data)
    traced.change({(at, at, b" backlog=4096"): [why("backlog"), why("other")]})
    end = traced.content.index(b"4096") + 4
    traced.change({(end, end, b" reuseport"): [why("reuseport")]})
    head = traced.content.index(b"http {") + 6
    traced.change({(head, head, b"\n    sendfile on;"): [why("sendfile")]})
    found = [(h.line, h.before, h.after, h.decision) for h in traced.hunks(file)]
    whole = ("listen 80;", "listen 80 backlog=4096 reuseport;")
    assert found == [
        (2, "", "\n    sendfile on;", "sendfile"),
        (3, *whole, "backlog"),
        (3, *whole, "other"),
        (3, *whole, "reuseport"),
    ]


def test_two_changes_that_are_alike_are_told_apart_from_two_reasons_for_one() -> None:
    file = parsed("events {}\n")
    traced = TracedFile(file.source.data)
    traced.change({(8, 8, b" a;"): [why("x")]})
    traced.change({(8, 8, b" a;"): [why("y")]})
    made = planned_file(file, traced)
    assert made.content == b"events { a; a;}\n"
    assert [one.after for one in made.hunks] == [" a; a;"] * 2
    assert old_content(made) == b"events {}\n"


OLD = b"events {\n    accept_mutex on;\n}\nhttp {\n    sendfile off;\n}\n"
NEW = b"events {\n    accept_mutex off;\n}\nhttp {\n    sendfile on;\n}\n"
HUNKS = [
    Hunk(line=2, start_byte=13, before="accept_mutex on;", after="accept_mutex off;", decision="a"),
    Hunk(line=5, start_byte=43, before="sendfile off;", after="sendfile on;", decision="b"),
]


def file_of(hunks: list[Hunk], new: bytes = NEW) -> PlannedFile:
    shas = [hashlib.sha256(one).hexdigest() for one in (OLD, new)]
    return PlannedFile(
        path="/n.conf", sha256_before=shas[0], sha256_after=shas[1], content=new, hunks=hunks
    )


@each_row(
    ("hunks", "line", "said"),
    [
        ([replace(HUNKS[0], start_byte=-1), HUNKS[1]], 2, "has no start"),
        ([replace(HUNKS[0], line=3), HUNKS[1]], 3, "changes line 2"),
        ([HUNKS[0], replace(HUNKS[0], line=4), HUNKS[1]], 2, "changes line 2"),
        ([replace(HUNKS[0], start_byte=12), HUNKS[1]], 2, "differs from"),
        ([replace(HUNKS[0], after="accept_mutex off; "), HUNKS[1]], 2, "differs from"),
        ([HUNKS[1], HUNKS[0]], 5, "differs from"),
        ([HUNKS[0], replace(HUNKS[0], start_byte=20, after="x")], 2, "overlap"),
        ([*HUNKS, replace(HUNKS[1], start_byte=200)], 5, "after the end"),
        ([replace(HUNKS[0], before="x", after="x"), HUNKS[1]], 2, "changes nothing"),
        ([replace(HUNKS[0], after="accept_mutex \u202eoff;"), HUNKS[1]], 2, "differs from"),
        ([replace(HUNKS[0], after="accept_mutex off;\x1b[8m"), HUNKS[1]], 2, "differs from"),
    ],
)  # fmt: skip
def test_a_hunk_that_is_not_so_is_found_in_its_line(
    hunks: list[Hunk], line: int, said: str
) -> None:
    assert old_content(file_of(HUNKS)) == OLD
    with pytest.raises(HunkError, match=said) as caught:
        old_content(file_of(hunks))
    assert caught.value.line == line


def test_the_first_line_that_differs_is_told() -> None:
    assert first_difference(b"a\nb\nc\n", b"a\nB\nc\n") == 2
    assert first_difference(b"a\n", b"a\nb\n") == 2
    assert first_difference(b"a", b"a\n") == 1
