"""Fixes: what the edits of findings do to files, and that they cure what they are for."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conf_files import Files
from msgspec.structs import replace as replace_struct
from nginx_versions import installed
from rows import each_row
from test_audit_examples import refusal

from nginx_tune.audit.context import Context
from nginx_tune.audit.engine import audit
from nginx_tune.audit.fixes import Change, Fixed, fix_findings
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule, RuleCheck, linux
from nginx_tune.conf.edits import Edit, add_to, remove, set_arguments
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.report.plan import render_diff

FIXABLE = [rule for rule in ALL if rule.fixes is not None]


def _fix(files: dict[str, bytes], rules: list[Rule], facts: Facts | None = None) -> Fixed:
    def run(changed: dict[str, bytes]) -> Findings:
        return audit(_tree({**files, **changed}), facts, rules)

    return fix_findings(_tree(files), run({}), run)


def _tree(files: dict[str, bytes]) -> ConfTree:
    return read_tree(next(iter(files)), Files(files))


@each_row("rule", FIXABLE, ids=lambda rule: rule.id)
def test_the_fix_of_a_rule_cures_its_example(rule: Rule) -> None:
    files = {"nginx.conf": rule.bad.conf.encode()}
    before = audit(_tree(files), rule.bad.facts, ALL)
    assert any(one.edits for one in before.findings if one.rule == rule.id)
    fixed = _fix(files, [rule], rule.bad.facts)
    assert fixed.cured
    after = audit(_tree({"nginx.conf": fixed.changes[0].new}), rule.bad.facts, ALL)
    assert [one for one in after.findings if one.rule == rule.id and one.edits] == []
    new = {one.rule for one in after.findings} - {one.rule for one in before.findings}
    assert new == set(), "the cure brings nothing new"
    assert len(after.files_unparsed) == 0
    assert decode(Findings, encode(before)) == before


def _rule(name: str, directive: str, edit: object) -> Rule:
    def check(context: Context) -> Iterator[Hit | MissingFacts]:
        for one in context.tree.main.walk():
            if one.name == directive:
                yield Hit(one, f"{directive} is wrong", [Evidence(fact=directive, value=one.value)])

    def fixes(_: Context, hit: Hit) -> Iterator[Edit]:
        yield edit(hit.place)  # type: ignore[operator]

    return replace(ALL[0], id=name, severity="warning", check=check, fixes=fixes, whole_tree=False)


def test_edits_of_two_rules_at_one_place_are_never_both_given() -> None:
    first = _rule("io-a", "gzip", lambda place: set_arguments(place, "off"))
    second = _rule("io-b", "gzip", remove)
    found = audit(_tree({"c": b"http { gzip on; }"}), None, [first, second])
    assert [bool(one.edits) for one in found.findings] == [True, False]


def test_edits_that_do_not_cure_or_that_bring_others_are_left_out() -> None:
    useless = _rule("io-a", "gzip", lambda place: set_arguments(place, "off"))
    good = _rule("io-b", "sendfile", remove)
    harmful = _rule("io-c", "http", lambda place: add_to(place, "sendfile on;"))
    files = {"c": b"http {\n  gzip on;\n  sendfile off;\n}\n"}
    fixed = _fix(files, [useless, good, harmful])
    assert fixed == Fixed([Change("c", files["c"], b"http {\n  gzip on;\n}\n")], 1)
    assert _fix(files, [useless]) == Fixed([], 0)


def test_edits_that_would_repeat_foreign_bytes_are_not_given() -> None:
    rule = _rule("io-a", "root", lambda place: set_arguments(place, place.value + "x"))
    found = audit(_tree({"c": b"root /\xff;"}), None, [rule])
    assert found.findings[0].edits == []


CRLF = b"\xef\xbb\xbf# caf\xe9\r\nhttp {\r\n\tsendfile off;\r\n\tgzip on;\r\n} # no line end"


def test_a_shared_file_is_edited_once_and_all_other_bytes_stay() -> None:
    good = _rule("io-b", "sendfile", lambda place: set_arguments(place, "on"))
    rule = replace(good, check=_only_off)
    files = {"c": b"include s/x; http { include s/x; }", "s/x": CRLF, "s/y": b"sendfile off;"}
    fixed = _fix(files, [rule])
    assert [(one.file, one.new) for one in fixed.changes] == [
        ("s/x", CRLF.replace(b"sendfile off", b"sendfile on"))
    ]


def _only_off(context: Context) -> Iterator[Hit | MissingFacts]:
    for one in context.tree.main.walk():
        if one.name == "sendfile" and one.value == "off":
            yield Hit(one, "off", [Evidence(fact="sendfile", value="off")])


HOSTILE = [
    ("plain.conf", b"a\nb\nc\n", b"a\nB\nc\n"),
    ("no end", b"a\nb", b"a\nb;"),
    ('q"uo\\te\n.conf', b"x\n", b"y"),
    ("caf\udce9/ü.conf", b"\xff\n\r\n", b"\xfe\n\r\n\x00"),
    ("new", b"", b"all\nnew"),
    ("long", b"".join(b"%d\n" % n for n in range(100)), b"".join(
        b"%d\n" % (n if n not in {3, 50, 97} else n + 1000) for n in range(100))),
]  # fmt: skip


@pytest.mark.needs("patch")
@each_row("tool", [["patch", "-p1", "--binary", "-s"], ["git", "apply"]])
def test_the_diff_is_what_patch_and_git_take(tmp_path: Path, tool: list[str]) -> None:
    for name, old, _ in HOSTILE:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(old)
    diff = render_diff(item for item in HOSTILE if tool[0] == "git" or "\n" not in item[0])
    subprocess.run(tool, input=diff, cwd=tmp_path, check=True, capture_output=True)
    for name, _, new in HOSTILE:
        if tool[0] == "git" or "\n" not in name:
            assert (tmp_path / name).read_bytes() == new


def test_a_host_fact_changes_the_fixes() -> None:
    rule = next(rule for rule in FIXABLE if rule.id == "io-chunk-unlimited")
    conf = b"http {\n  sendfile on;\n  server { root /srv; }\n}\n"
    fixed = _fix({"c": conf}, [rule], linux(version="1.18.0"))
    assert fixed.changes[0].new == conf.replace(b"on;\n", b"on;\n  sendfile_max_chunk 2m;\n")
    assert _fix({"c": conf}, [rule], linux(version="1.22.1")).changes == []
    assert replace_struct(linux(), datasets=[]) == linux()


def test_what_nginx_refuses_is_left_out_and_the_rest_stays() -> None:
    first = _rule("io-a", "gzip", lambda place: set_arguments(place, "refused"))
    first = replace(first, check=_named("gzip", "on"))
    second = replace(_rule("io-b", "sendfile", remove), check=_named("sendfile", "off"))
    files = {"c": b"http {\n  gzip on;\n  sendfile off;\n}\n"}

    def run(changed: dict[str, bytes]) -> Findings:
        return audit(_tree({**files, **changed}), None, [first, second])

    def accepts(changed: dict[str, bytes]) -> bool:
        return b"refused" not in changed["c"]

    fixed = fix_findings(_tree(files), run({}), run, accepts)
    assert fixed == Fixed([Change("c", files["c"], b"http {\n  gzip on;\n}\n")], 1)


def _named(name: str, value: str) -> RuleCheck:
    def check(context: Context) -> Iterator[Hit | MissingFacts]:
        for one in context.tree.main.walk():
            if (one.name, one.value) == (name, value):
                yield Hit(one, name, [Evidence(fact=name, value=value)])

    return check


def test_a_zone_of_another_module_is_not_taken_for_the_sessions_of_http() -> None:
    """One zone belongs to one module: nginx refuses a second use."""
    rule = next(rule for rule in FIXABLE if rule.id == "tls-cache-builtin")
    stream = b"stream { server { listen 1 ssl; ssl_session_cache shared:SSL:1m; } }\n"
    conf = b"http { server { listen 443 ssl; ssl_session_cache builtin; } }\n"
    new = _fix({"c": b"events {} " + stream + conf}, [rule]).changes[0].new
    assert b"builtin" not in new
    assert new.count(b"shared:SSL:") == 1


@each_row("rule", FIXABLE, ids=lambda rule: rule.id)
def test_a_rule_with_fixes_is_proven(rule: Rule) -> None:
    assert rule.proof == "proven"


@pytest.mark.needs("root", "nginx")
@each_row("rule", FIXABLE, ids=lambda rule: rule.id)
def test_nginx_takes_what_a_fix_makes_of_the_example(
    rule: Rule, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    tls = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    before = re.sub(r"(?<![\w.])http\s*\{", f"http {{ {tls} ", rule.bad.conf, count=1)
    fixed = _fix({"nginx.conf": before.encode()}, [rule], rule.bad.facts)
    conf = tmp_path / "nginx.conf"
    conf.write_bytes(fixed.changes[0].new)
    assert refusal(conf, installed()) == ""


def test_options_given_twice_go_where_the_other_line_has_all_ports() -> None:
    rules = [one for one in ALL if one.id == "ls-reuseport-twice"]

    def fixed(*listens: str) -> object:
        lines = "\n".join(f"server {{ listen {one}; }}" for one in listens)
        done = _fix({"/c": f"events {{}} http {{\n{lines}\n}}".encode()}, rules)
        return done.changes

    assert fixed("127.1:80 reuseport", "127.0.0.1:80 reuseport")
    assert fixed("8000-8003 reuseport", "8001 reuseport")
    assert not fixed("8001 reuseport", "8000-8003 reuseport")
