"""Ordinary sites: audit and plan say of each what its table says, and no more."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from command_line import Run
from rows import each_row
from site_runs import COMMANDS, run_cell
from site_trees import (
    REASONS,
    differences,
    is_complete,
    lay_out,
    names,
    plan_differences,
    read_site,
    write_facts,
)

HINT = "(where the change is right, change the row of its site.toml)"


@each_row("name", names)
def test_a_site_has_the_findings_and_the_plan_of_its_table(
    name: str, tmp_path: Path, run_cli: Any
) -> None:
    """Audited as a checkout where all of it is there, else as it lies on the host."""
    site = read_site(name)
    facts = write_facts(site, tmp_path / "facts.json")
    host, at, options = tmp_path / "host", tmp_path / "checkout", []
    planned = audited = lay_out(name, host)
    if is_complete(name):
        audited, top = lay_out(name, at, moved=False), site.main.partition("/")[0]
        options = [f"--map=/{top}={at / top}"]
    run: Run = run_cli("audit", audited, *options, "--facts", facts, "-f", "json")
    assert run.stdout, run.stderr
    apart = differences(site, json.loads(run.stdout), at if options else host)
    run = run_cli("plan", planned, "--facts", facts, "-f", "json")
    assert run.returncode == 0, run.stderr
    apart += plan_differences(site, json.loads(run.stdout), host)
    assert not apart, "\n".join([HINT, *apart])


NOW = re.compile(r"(?m)^.*<- (?:flips, )?now$")
WORDS = {
    "measure": {"not enough evidence"}, "on": {"enable"}, "default": {"keep"},
    "off": {"disable", "not applicable"}, "set": {"raise", "lower", "set"},
}  # fmt: skip
"""The words of ``explain`` for what ``check`` says."""
SWITCHES = ("thread-pools", "per-disk-pools", "sendfile-max-chunk", "reuseport")


@each_row("name", names)
def test_every_command_gives_a_switch_one_verdict_and_one_reason(
    name: str, tmp_path: Path, run_cli: Any
) -> None:
    facts = write_facts(read_site(name), tmp_path / "facts.json")
    planned = lay_out(name, tmp_path / "host")
    checked = json.loads(run_cli("check", planned, "--facts", facts, "-f", "json").stdout)
    shown: Run = run_cli("recommend", "-c", planned, "--facts", facts)
    assert checked["binding"] in shown.stdout
    lines = (re.split(r" {2,}", line) for line in shown.stdout.splitlines())
    said = {words[0]: words[1:] for words in lines if words[0] in SWITCHES}
    switches = {switch["decision"]: switch for switch in checked["switches"]}
    assert said.keys() == switches.keys()
    plan = json.loads(run_cli("plan", planned, "--facts", facts, "-f", "json").stdout)
    written = {hunk["decision"] for file in plan["files"] for hunk in file["hunks"]}
    for id_, switch in switches.items():
        assert (id_ in written) == switch["differs"]
        table = run_cli("explain", id_, "--facts", facts, "-c", planned).stdout
        now = {re.split(r" {2,}", line)[-2] for line in NOW.findall(table)}
        assert now <= WORDS[switch["verdict"]], (switch, table[table.rindex("On this host") :])
        word, why = said[id_]
        assert why == switch["why"]
        assert (word == "measure") == (switch["verdict"] == "measure")
        if switch["differs"]:
            assert word == (switch["value"] or switch["verdict"])
        else:
            assert word in {"measure", "stays off", "as it is", switch["verdict"]}


@each_row("name", names)
def test_every_line_of_a_plan_is_judged_with_a_reason(name: str) -> None:
    lines = read_site(name).plan
    assert [one for one in lines if not one.why and (one.by, one.kind) not in REASONS] == []


END_TO_END = ("debian", "wordpress", "django", "mastodon", "rails", "nextcloud")
"""On the installed nginx: files, PHP, a unix socket, a proxy cache, WebSockets, uploads."""
COSTLY = ("nginx -t", "rehearse", "apply", "rollback")


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx", "probe", "ip", "openssl")
@pytest.mark.parametrize("name", END_TO_END)
def test_a_site_is_taken_through_its_plan_and_back(name: str) -> None:
    """A cell is right, or its table says why it is not."""
    with TemporaryDirectory() as place:  # short: the name of a socket has 107 bytes
        at = Path(place)
        cells = {one.name: run_cell(one, name, at) for one in COMMANDS if one.name in COSTLY}
    known = read_site(name).wrong
    assert {key: one.said for key, one in cells.items() if one.outcome != "right"}.keys() <= {
        *known
    }, cells
