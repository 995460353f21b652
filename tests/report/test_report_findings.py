"""Findings on the console."""

import json

from msgspec.structs import replace

from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.findings import Finding, Findings, NeedsFacts, Unparsed
from nginx_tune.report.findings import render_findings, render_findings_markdown
from nginx_tune.report.page.screens import findings_screen
from nginx_tune.report.sarif import render_sarif
from nginx_tune.report.screen import Table

FINDING = Finding(
    rule="io-chunk-unlimited",
    severity="warning",
    file="/etc/nginx/nginx.conf",
    line=7,
    message="one call is not limited",
    why="All others wait.",
    evidence=[
        Evidence(fact="served", value=3 << 30, unit="bytes"),
        Evidence(fact="lines", value=101_172, unit="lines"),
        Evidence(fact="known", value=True),
    ],
    fix="sendfile_max_chunk 512k;",
)


def test_a_finding_with_its_place_evidence_reason_and_fix() -> None:
    found = Findings(
        findings=[FINDING],
        needs_facts=[
            NeedsFacts(rule="a", facts=["x"], how="get x"),
            NeedsFacts(rule="b", facts=["x"], how="get x"),
        ],
        files_parsed=["/etc/nginx/nginx.conf"],
        files_unparsed=[Unparsed(file="/etc/nginx/b.conf", line=3, reason='unexpected "}"')],
    )
    assert render_findings(found, verbose=True) == (
        '/etc/nginx/b.conf:3: not parsed: unexpected "}"\n'
        "\n"
        "/etc/nginx/nginx.conf:7: warning[io-chunk-unlimited]\n"
        "  one call is not limited\n"
        "  evidence: served = 3.0 GiB; lines = 101,172 lines; known = yes\n"
        "  why: All others wait.\n"
        "  fix: sendfile_max_chunk 512k;\n"
        "\n"
        "1 warning in 1 file, 1 not parsed\n"
        "\n"
        "not checked for lack of facts: a, b\n"
        "  get x\n"
    )


def of_one_block(*names: str, block: int | None = 3) -> list[Finding]:
    return [
        replace(
            FINDING, message=f'"{name}" is not allowed in upstream', line=4 + n, block_line=block
        )
        for n, name in enumerate(names)
    ]


def test_what_one_wrong_block_makes_is_one_entry_with_its_places() -> None:
    one = of_one_block("root", "index", "in\x1bdex")
    other = [replace(FINDING, message='"root" is not allowed in upstream', line=90, block_line=80)]
    found = Findings(findings=[*one, *other], files_parsed=["a"])
    more = '2 more of the kind in this block: line 5 "index", 6 "in\\x1bdex"'
    text = render_findings(found)
    assert text.count("nginx.conf:") == 2
    assert f"  {more}\n" in text
    assert "4 warnings in 1 file" in text
    assert render_findings_markdown(found).decode().count("\n- ") == 2
    (table,) = [part for block in findings_screen(found) for part in block if type(part) is Table]
    assert len(table.rows) == 1 + 2
    assert more in table.rows[1][2]
    # Machines have each place still.
    results = json.loads(render_sarif(found))["runs"][0]["results"]
    assert [one["locations"][0]["physicalLocation"]["region"]["startLine"] for one in results] == [
        4, 5, 6, 90,
    ]  # fmt: skip


def test_two_or_of_other_kinds_or_of_no_known_block_are_told_one_by_one() -> None:
    for findings in (
        of_one_block("root", "index"),
        of_one_block("root", "index", "alias", block=None),
        [replace(one, fix=f"fix {n}") for n, one in enumerate(of_one_block("a", "b", "c"))],
    ):
        text = render_findings(Findings(findings=findings))
        assert text.count("nginx.conf:") == len(findings)
        assert "of the kind" not in text


def test_rules_without_facts_are_one_line() -> None:
    needs = [NeedsFacts(rule=f"rule-{n}", facts=["x"], how="get x") for n in range(30)]
    needs += [NeedsFacts(rule="other", facts=["y"], how="get y")]
    text = render_findings(Findings(needs_facts=needs))
    assert text.splitlines()[-1] == (
        "31 rules were not checked for lack of facts (nginx-tune -v audit names them): get x"
    )
    assert "rule-3" not in text
    assert "get y" in render_findings(Findings(needs_facts=needs), verbose=True)


def test_text_from_outside_cannot_steer_a_terminal_or_forge_a_line() -> None:
    evil = FINDING.__class__(
        **{
            **{name: getattr(FINDING, name) for name in FINDING.__struct_fields__},
            "file": "/etc/\x1b]0;x\x07\nno findings in 1 file",
            "message": "a\r\nb\u202ec",
        }
    )
    text = render_findings(Findings(findings=[evil]))
    assert "\x1b" not in text
    assert "\n" + "no findings" not in text
    assert "\u202e" not in text
