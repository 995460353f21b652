"""Every rule's own examples, and the registry against the folder."""

import re
from importlib import import_module
from pathlib import Path

from rows import each_row

from nginx_tune.audit import registry, rules
from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.base import encode
from nginx_tune.documents.findings import Findings

RULES = each_row("rule", registry.ALL, ids=lambda rule: rule.id)
FOLDER = Path(rules.__file__).parent


def _run(rule: Rule, example: Example) -> Findings:
    tree = parse_text(example.conf)
    assert tree.complete, tree.unparsed
    return audit(tree, example.facts, [rule])


def test_the_registry_is_the_folder() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert {rule.id.replace("-", "_") for rule in registry.ALL} == files
    for name in files:
        assert import_module(f"nginx_tune.audit.rules.{name}").RULE in registry.ALL


@RULES
def test_the_bad_example_fires_with_evidence(rule: Rule) -> None:
    found = _run(rule, rule.bad)
    assert found.findings, "the bad example is silent"
    for finding in found.findings:
        assert finding.rule == rule.id
        assert finding.evidence
        assert finding.line >= 1
    assert not found.needs_facts


@RULES
def test_the_good_example_is_silent(rule: Rule) -> None:
    found = _run(rule, rule.good)
    assert not found.findings
    assert not found.needs_facts, "silence must come from knowing, not from missing facts"


@RULES
def test_without_facts_a_rule_is_silent_or_says_what_it_needs(rule: Rule) -> None:
    if rule.bad.facts is None:
        return
    found = _run(rule, rule.bad._replace(facts=None))
    assert not found.findings
    assert [needs.rule for needs in found.needs_facts] == [rule.id]
    assert found.needs_facts[0].how.startswith("nginx-tune ")


@RULES
def test_a_rule_is_written_out(rule: Rule) -> None:
    assert re.fullmatch(r"(cf|io|lim|ls|up|px|ca|tls|log|gz|cn|ob|vr)(-[a-z0-9]+)+", rule.id)
    for text in (rule.title, rule.why, rule.fix, *rule.sources):
        assert text == " ".join(text.split())
    assert rule.sources
    assert not rule.title.endswith(".")


@RULES
def test_all_rules_together_say_the_same_again(rule: Rule) -> None:
    tree = parse_text(rule.bad.conf)
    first = audit(tree, rule.bad.facts)
    again = audit(parse_text(rule.bad.conf), rule.bad.facts)
    assert encode(first) == encode(again)
    assert rule.id in {finding.rule for finding in first.findings}
