"""Every form of findings for other programs, from one set that means harm."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.findings import (
    FileEdit,
    Finding,
    Findings,
    NeedsFacts,
    NginxTest,
    Severity,
    Suppressed,
    Unparsed,
)
from nginx_tune.report.findings import render_findings_markdown
from nginx_tune.report.findings_ci import (
    render_checkstyle,
    render_github,
    render_gitlab,
    render_junit,
)
from nginx_tune.report.sarif import render_sarif
from nginx_tune.report.text import markdown_code, markdown_text, uri, xml_text

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text())

EVIL = "\x1b[31m</failure>]]>&\"'<script>%0A::error::x|`a```b``\n::warning::@team ￿\u202e, :$x$"
FILE = "conf.d/a b:,\x1b<é>&'\".conf"


def _finding(severity: Severity, number: int, rule: str = "io-chunk-unlimited") -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        file=FILE,
        line=number,
        column=3,
        end_line=number,
        end_column=9,
        message=EVIL,
        why=EVIL,
        evidence=[
            Evidence(fact=EVIL, value=EVIL),
            Evidence(fact="served", value=3 << 30, unit="bytes"),
        ],
        fix=EVIL,
        edits=[FileEdit(file=FILE, start_byte=3, end_byte=5, text="x\r\n")],
        fingerprint=f"abc{number}-1",
    )


FOUND = Findings(
    findings=[
        _finding("error", 1, "io-pool-literal-unknown"),
        _finding("warning", 2),
        _finding("advice", 3),
        _finding("info", 4, "su-unused"),
    ],
    needs_facts=[NeedsFacts(rule="io-threads-not-built", facts=[EVIL], how=EVIL)],
    suppressed=[
        Suppressed(
            rule="io-chunk-unlimited", file=FILE, line=9, reason=EVIL, by="baseline", message=EVIL,
            fingerprint="abc9-1", severity="warning",
        )
    ],
    files_parsed=["nginx.conf", FILE],
    files_unparsed=[Unparsed(file=FILE + "2", line=None, reason=EVIL)],
    nginx_test=NginxTest(accepted=False, messages=[f"[emerg] {EVIL}"]),
)  # fmt: skip

FORMATS: dict[str, Callable[[Findings], bytes]] = {
    "sarif": render_sarif,
    "junit": render_junit,
    "checkstyle": render_checkstyle,
    "gitlab": render_gitlab,
    "github": render_github,
    "markdown": render_findings_markdown,
}
EACH = each_row("render", FORMATS.values(), ids=list(FORMATS))


@EACH
def test_hostile_text_stays_text(render: Callable[[Findings], bytes]) -> None:
    text = render(FOUND).decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert render(FOUND) == render(FOUND)
    assert render(Findings(files_parsed=["nginx.conf"])).decode() is not None


def _sarif(findings: Findings) -> Any:
    log = json.loads(render_sarif(findings))
    jsonschema.Draft202012Validator(SCHEMA).validate(log)
    return log


@pytest.mark.long
def test_sarif_holds_to_its_schema_for_every_rule() -> None:
    for rule in (*ALL, *NOTICES):
        found = audit(parse_text(rule.bad.conf), rule.bad.facts, (*ALL, *NOTICES))
        log = _sarif(found)
        assert [one["ruleId"] for one in log["runs"][0]["results"]] == [
            one.rule for one in (*found.findings, *found.suppressed)
        ]
    _sarif(Findings())


def test_sarif_has_what_code_scanning_asks_for() -> None:
    log = _sarif(FOUND)
    assert log["$schema"]
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule["id"] for rule in rules)
    for rule in rules:
        for text in ("shortDescription", "fullDescription", "help"):
            assert rule[text]["text"]
        assert rule["help"]["markdown"].startswith("# ")
        assert rule["defaultConfiguration"]["level"] in {"error", "warning", "note"}
        assert rule["properties"]["problem.severity"] in {"error", "warning", "recommendation"}
    assert [one["level"] for one in run["results"]] == [
        "error",
        "warning",
        "note",
        "note",
        "warning",
    ]
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["message"]["text"]
        assert re.fullmatch(r"\w+:\d+", one["partialFingerprints"]["primaryLocationLineHash"])
        place = one["locations"][0]["physicalLocation"]
        assert re.fullmatch(r"[\w.~/%-]+", place["artifactLocation"]["uri"])
        assert not place["artifactLocation"]["uri"].startswith("/")
    first = run["results"][0]
    region = first["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 1, "startColumn": 3, "endLine": 1, "endColumn": 9}
    (change,) = first["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["deletedRegion"] == {"byteOffset": 3, "byteLength": 2}
    assert change["replacements"][0]["insertedContent"]["text"] == "x\r\n"
    assert run["results"][-1]["suppressions"][0]["kind"] == "external"
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    assert len(invocation["toolExecutionNotifications"]) == 3


def test_junit_counts_what_it_holds() -> None:
    root = ET.fromstring(render_junit(FOUND))  # noqa: S314  # our own
    assert root.tag == "testsuites"
    for suite in root:
        cases = list(suite)
        assert int(suite.attrib["tests"]) == len(cases) > 0
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(case.find(tag) is not None for case in cases)
        assert all(case.attrib["classname"] and case.attrib["name"] for case in cases)
    assert len(root.findall(".//failure")) == 2, "an error and a warning"
    assert len(root.findall(".//system-out")) == 2, "advice and information pass"
    (clean,) = root.findall("./testsuite[@name='nginx.conf']/testcase")
    assert list(clean) == []
    assert "</failure>" in (root.findall(".//failure")[0].text or "")


def test_gitlab_has_relative_paths_and_its_own_fingerprints() -> None:
    raw = render_gitlab(FOUND)
    assert not raw.startswith(b"\xef\xbb\xbf")
    issues = json.loads(raw)
    assert len({one["fingerprint"] for one in issues}) == len(issues) == 5
    assert [one["severity"] for one in issues] == [
        "blocker", "critical", "major", "minor", "info",
    ]  # fmt: skip
    for one in issues:
        assert one["description"].startswith(one["check_name"])
        assert not one["location"]["path"].startswith(("/", "./"))
        assert one["location"]["lines"]["begin"] >= 1


def test_github_commands_cannot_be_broken_out_of() -> None:
    lines = render_github(FOUND).decode().splitlines()
    assert len(lines) == 5
    for line in lines:
        command, _, rest = line.removeprefix("::").partition(" ")
        assert command in {"error", "warning", "notice"}
        properties, _, message = rest.partition("::")
        for item in properties.split(","):
            name, equals, value = item.partition("=")
            assert equals, item
            assert name in {"file", "line", "col", "endLine", "endColumn", "title"}
            assert ":" not in value
        assert message
    assert lines[1].startswith("::error file=conf.d/a b%3A%2C\\x1b<é>&'\".conf,line=1,col=3,")


def test_markdown_shows_what_stands_there() -> None:
    text = render_findings_markdown(FOUND).decode()
    assert "<script>" not in re.sub(r"(`+).*?\1", "", text).replace("\\<", "")
    assert "@team" not in re.sub(r"(`+).*?\1", "", text)
    assert text.count("\n## ") == 7
    assert markdown_text("a|b<c>*d*") == r"a\|b\<c\>\*d\*"
    assert markdown_code("a`b") == "``a`b``"
    assert markdown_code("`") == "`` ` ``"


def test_names_as_uris_and_in_xml() -> None:
    assert uri("./a b.conf") == "a%20b.conf"
    assert uri("/etc/é") == "file:///etc/%C3%A9"
    assert uri("x:y\udcff") == "x%3Ay%FF"
    assert xml_text("a<b>&\"'\x00\ufffe\ud800") == "a&lt;b&gt;&amp;&quot;&apos;\\x00\\ufffe\\ud800"
