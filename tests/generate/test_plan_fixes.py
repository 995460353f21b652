"""Safe fixes in a plan: in their places, never against a decision, none left for a second plan."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rows import each_row
from test_plan_changes import contents, decided, facts_of, planned, read, write

from nginx_tune.audit.context import Context
from nginx_tune.audit.engine import audit
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule
from nginx_tune.change.generate.changes import Changes, Ground, add_fixes
from nginx_tune.change.generate.plan_files import TracedFile
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.conf.edits import Edit, remove, set_arguments
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings

FIXABLE = [rule for rule in ALL if rule.fixes is not None]


def with_fixes(tree: ConfTree, facts: Facts, rules: Iterable[Rule] = ALL) -> tuple[Changes, Ground]:
    decisions = decided(tree, facts, "static")

    def again(files: Mapping[str, bytes]) -> ConfTree:
        return read(Path(tree.path), files)

    def judge(one: ConfTree) -> Findings:
        return audit(one, facts, rules, decide=lambda: decisions)

    def leaves(files: Mapping[str, bytes]) -> set[str]:
        held = as_changes(decisions, again(files))
        return {one.id for one in held.decisions if one.settings}

    ground = Ground(again, judge, leaves)
    return add_fixes(planned(tree, facts), tree, ground), ground


@each_row("rule", FIXABLE, ids=lambda rule: rule.id)
def test_what_a_rule_faults_is_fixed_once_and_nothing_gets_worse(
    rule: Rule, tmp_path: Path
) -> None:
    tree = write(tmp_path, {"nginx.conf": rule.bad.conf})
    facts = rule.bad.facts or facts_of("raid10-4hdd")
    changes, ground = with_fixes(tree, facts)
    decisions_alone = ground.audit(ground.read(contents(planned(tree, facts))))
    found = ground.audit(ground.read(contents(changes)))
    before, after = (Counter(f.rule for f in one.findings) for one in (decisions_alone, found))
    assert after <= before, after - before
    refused = {one.decision for one in changes.refusals}
    fixed = {hunk.decision for file in changes.files for hunk in file.hunks}
    curable = {one.rule for one in decisions_alone.findings if one.edits}
    assert curable <= refused | fixed
    assert {one.rule for one in found.findings if one.edits} <= refused
    lines = rule.bad.conf.split("\n")
    for file in changes.files:
        for hunk in file.hunks:
            assert hunk.before.split(" ")[0] in lines[hunk.line - 1], hunk
    for file in changes.files:
        Path(file.path).write_bytes(file.content)
    second, _ = with_fixes(read(tmp_path / "nginx.conf", {}), facts)
    assert second.files == []


def wanting(directive: str, wanted: str) -> Rule:
    """A rule that wants a directive to have another value, or to be away."""

    def check(context: Context) -> Iterator[Hit | MissingFacts]:
        for one in context.tree.main.walk():
            if one.name == directive and one.value != wanted:
                yield Hit(one, f"{directive} is wrong", [])

    def fixes(_: Context, hit: Hit) -> Iterator[Edit]:
        yield set_arguments(hit.place, wanted) if wanted else remove(hit.place)

    name = f"io-{directive}"
    return replace(ALL[0], id=name, severity="warning", check=check, fixes=fixes, whole_tree=False)


CONF = """\
events {
    accept_mutex off;
    multi_accept off;
}
http {
    gzip on;
    server {
        # who it is
        server_tokens on;
        root /srv;
    }
}
"""


def test_a_fix_that_a_decision_would_undo_is_left_out_and_said(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": CONF})
    rules = [wanting("multi_accept", "on"), wanting("server_tokens", "off")]
    changes, _ = with_fixes(tree, facts_of("raid10-4hdd"), rules)
    [refusal] = [one for one in changes.refusals if one.decision == "io-multi_accept"]
    assert (refusal.reason, refusal.line) == ("it would undo a change made by accept", 3)
    [file] = changes.files
    assert b"multi_accept off;" in file.content
    [hunk] = [one for one in file.hunks if one.decision == "io-server_tokens"]
    assert (hunk.line, hunk.before, hunk.after) == (9, "server_tokens on;", "server_tokens off;")
    assert (hunk.confidence, hunk.reason) == ("high", "server_tokens is wrong")


def test_lines_are_told_as_they_are_in_the_old_file() -> None:
    rng = random.Random(7)
    for _ in range(300):
        lines = [f"<{letter * 3}>" for letter in "abcdefghijkl"[: rng.randint(1, 12)]]
        text = "\n".join(lines) + rng.choice(["", "\n"])
        spans, at = [], 0
        while at < len(text) and rng.random() < 0.8:
            step = rng.choice([1, 6])  # six characters are a line
            start = min(len(text), -(-rng.randint(at, len(text)) // step) * step)
            end = min(len(text), start + rng.choice([0, 0, 1, 2]) * step)
            spans.append((start, end, rng.choice(["", "\n", "new", "\nnew", "new\n", "\nnew\n"])))
            at = end + 1
        parts, at = [], 0
        for start, end, new in spans:
            parts += text[at:start], new
            at = end
        changed = "".join([*parts, text[at:]]).split("\n")
        traced = TracedFile(text.encode())
        traced.change({(start, end, new.encode()): [] for start, end, new in spans})
        assert traced.content.decode().split("\n") == changed
        found = [traced.origin(number) for number in range(1, len(changed) + 1)]
        assert found == sorted(found)
        for line, origin in zip(changed, found, strict=True):
            whole = [one for one in lines if line.startswith(one)]
            assert not whole or lines[origin - 1] in whole, (text, spans, changed, found)
