"""Commands run on the ordinary sites: each a cell of the matrix in docs/sites.md."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matrix_program import own_executable
from planned_files import planned_file
from site_trees import (
    HERE,
    Site,
    differences,
    furnish,
    is_complete,
    lay_out,
    plan_differences,
    program_of,
    read_site,
    write_facts,
)

from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.base import encode
from nginx_tune.documents.plan import Plan
from nginx_tune.host.live import LiveHost

ROOT = HERE.parents[1]
Outcome = Literal["right", "wrong", "beyond"]


class Cell(NamedTuple):
    """What came of a command on a site: right, wrong, or beyond what can be run here."""

    outcome: Outcome
    said: str


class Place(NamedTuple):
    """A site as it is laid out to be run."""

    site: Site
    main: Path
    top: Path
    facts: Path
    plan: Path
    program: str | None


class Command(NamedTuple):
    """A column of the matrix."""

    name: str
    run: Callable[[Place], Cell]
    is_run: bool = False
    """Whether an nginx of the site's own kind is needed."""
    needs_fault: bool = False


def place_of(name: str, work: Path) -> Place:
    """The site's directory below WORK, laid out anew where it is not there."""
    site, top = read_site(name), work / name / "tree"
    if not (work / name / "facts.json").exists():
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir(parents=True)
        lay_out(name, top)
        furnish(name, top)
        write_facts(site, work / name / "facts.json")
    return Place(
        site, top / site.main, top, work / name / "facts.json", work / name / "plan.json",
        program_of(site),
    )  # fmt: skip


def run_tool(*words: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run nginx-tune as a process of its own, which ends with its time."""
    return subprocess.run(
        [sys.executable, "-m", "nginx_tune", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT,
    )  # fmt: skip


def _document(run: subprocess.CompletedProcess[str]) -> dict[str, Any] | None:
    return json.loads(run.stdout) if run.stdout.startswith("{") else None


def _failed(run: subprocess.CompletedProcess[str]) -> Cell:
    found = _document(run) or {}
    faults = [fault for one in found.get("turnovers", []) for fault in one["faults"]]
    said = [found.get("reason"), *faults, *run.stderr.strip().splitlines()[-1:]]
    return Cell("wrong", f"exit {run.returncode}: {'; '.join(map(str, filter(None, said)))[:300]}")


def nginx_test(at: Place) -> Cell:
    """nginx takes the tree as it is, in the sandbox."""
    run = run_tool(
        *("audit", at.main, "--facts", at.facts, "--test", "--nginx", at.program, "-f", "json")
    )
    found = _document(run)
    if found is None:
        return _failed(run)
    test = found["nginx_test"]
    return Cell("right", "") if test["accepted"] else Cell("wrong", test["messages"][-1])


def audit(at: Place) -> Cell:
    """All findings of the table, and only those."""
    run = run_tool("audit", at.main, "--facts", at.facts, "-f", "json")
    return _audited(at, run, at.top)


def checkout(at: Place) -> Cell:
    """The same in a checkout, with the paths of the host; exit 4 where an include is not there."""
    top, name = at.top.with_name("checkout"), at.top.parent.name
    shutil.rmtree(top, ignore_errors=True)
    main, first = lay_out(name, top, moved=False), at.site.main.partition("/")[0]
    mapped = f"--map=/{first}={top / first}"
    run = run_tool("audit", main, mapped, "--facts", at.facts, "-f", "json")
    if not is_complete(name) and run.returncode != EXIT_UNDECIDED:
        return Cell("wrong", f"exit {run.returncode} where an include is not there")
    return _audited(at, run, top, is_complete=is_complete(name))


EXIT_UNDECIDED = 4


def _audited(
    at: Place, run: subprocess.CompletedProcess[str], top: Path, *, is_complete: bool = True
) -> Cell:
    found = _document(run)
    if found is None:
        return _failed(run)
    if apart := differences(at.site, found, top, is_complete=is_complete):
        return Cell("wrong", "; ".join(apart))
    printed = {one["rule"] for one in found["findings"]}
    amiss = [
        f"{one.rule} {one.kind}"
        for one in at.site.findings
        if (one.kind == "false" and one.rule in printed) or (one.kind == "missing" and is_complete)
    ]
    return Cell("wrong" if amiss else "right", ", ".join(amiss))


def plan(at: Place) -> Cell:
    """The lines of the table, none of them wrong."""
    run = run_tool("plan", at.main, "--facts", at.facts, "-f", "json", "-o", at.plan)
    if run.returncode:
        return _failed(run)
    if apart := plan_differences(at.site, json.loads(at.plan.read_bytes()), at.top):
        return Cell("wrong", "; ".join(apart))
    lines = at.site.plan
    wrong = [one.by for one in lines if one.kind == "wrong"]
    said = f"of {len(lines)} lines wrong: {', '.join(wrong)}" if wrong else ""
    return Cell("wrong" if wrong else "right", said)


def recommend(at: Place) -> Cell:
    """The numbers of the plan, no others."""
    run = run_tool("recommend", "-c", at.main, "--facts", at.facts, "-f", "json")
    found = _document(run)
    if found is None:
        return _failed(run)
    said = {
        (one["id"], " ".join([setting["directive"], *setting["args"]]))
        for one in found["decisions"]
        for setting in one["settings"]
    }
    planned = {
        (hunk["decision"], " ".join(hunk["after"].strip().rstrip(";").split()))
        for file in _plan_of(at)["files"]
        for hunk in file["hunks"]
    }
    apart = sorted(f"{by}: {line}" for by, line in planned - said)
    return Cell("wrong" if apart else "right", "; ".join(apart))


def generate(at: Place) -> Cell:
    """A configuration of this kind for the host, in which audit finds nothing."""
    written = at.plan.with_name("generated.conf")
    options = ("--facts", at.facts, "--kind", at.site.kind)
    run = run_tool("generate", *options, "-o", written)
    if run.returncode:
        return _failed(run)
    run = run_tool("audit", written, "--facts", at.facts, "-f", "json")
    found = _document(run)
    if found is None:
        return _failed(run)
    rules = [one["rule"] for one in found["findings"]]
    return Cell("wrong" if rules else "right", ", ".join(rules))


def explain(at: Place) -> Cell:
    """A page for each rule and decision that had a word here, with this host's figures."""
    rules = {one.rule for one in at.site.findings if one.kind != "missing"}
    for name in sorted(rules | {one.by for one in at.site.plan}):
        on_host = ["--facts", at.facts, "-c", at.main]
        run = run_tool("explain", name, *([] if name in rules else on_host))
        if run.returncode or len(run.stdout) < 200:
            return _failed(run)
    return Cell("right", "")


def _plan_of(at: Place) -> dict[str, Any]:
    if not at.plan.exists():
        run_tool("plan", at.main, "--facts", at.facts, "-f", "json", "-o", at.plan)
    found: dict[str, Any] = json.loads(at.plan.read_bytes())
    return found


COMMENT = b"# Looked at by those who run it.\n"
_BETTER, _WORSE, _EQUAL = "better", "worse", "no_difference"


def validate_better(at: Place) -> Cell:
    """The tree without its fault is faster than with it."""
    faulty = at.top.with_name("faulty")
    if not faulty.exists():
        name = at.top.parent.name
        lay_out(name, faulty)
        furnish(name, faulty)
        path, _, bad = _with_fault(at.site, faulty)
        path.write_bytes(bad)
    fault = _fault(at.site)
    path = faulty / fault.file
    bad = path.read_bytes()
    return _validated(at, faulty / at.site.main, path, bad.replace(*_words(fault)[::-1]), _BETTER)


def validate_worse(at: Place) -> Cell:
    """The tree with the fault is slower than without."""
    path, _, bad = _with_fault(at.site, at.top)
    return _validated(at, at.main, path, bad, _WORSE)


def validate_equal(at: Place) -> Cell:
    """A comment changes nothing."""
    return _validated(at, at.main, at.main, COMMENT + at.main.read_bytes(), _EQUAL)


def _fault(site: Site) -> Any:
    assert site.fault is not None
    return site.fault


def _words(fault: Any) -> tuple[bytes, bytes]:
    return fault.old.encode(), fault.new.encode()


def _with_fault(site: Site, top: Path) -> tuple[Path, bytes, bytes]:
    fault = _fault(site)
    path = top / fault.file
    good = path.read_bytes()
    assert good.count(fault.old.encode()) == 1, f"{fault.old} stands once in {fault.file}"
    return path, good, good.replace(*_words(fault))


def _validated(at: Place, main: Path, path: Path, new: bytes, right: str) -> Cell:
    names = {Path(name).resolve(): Path(name) for name in read_tree(str(main), LiveHost()).files}
    own = names.pop(path.resolve())
    change = Plan(
        conf_path=str(main), nginx_version=at.site.version,
        reads={str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in names.values()},
        files=[planned_file(own, path.read_bytes(), new)],
    )  # fmt: skip
    file = at.plan.with_name(f"{right}.json")
    file.write_bytes(encode(change))
    run = run_tool(
        *("validate", "--plan", file, "--nginx", at.program, "--no-store", "-f", "json"),
        *("--duration", "2s", "--warmup", "1s", "--pairs", "7"),
        seconds=300,
    )
    found = _document(run)
    if found is None:
        return _failed(run)
    outcome = found["outcome"]
    if outcome == right:
        return Cell("right", "")
    pairs = max((one["pairs"] for one in found["metrics"]), default=0)
    said = f"not settled by {pairs} pairs" if outcome == "inconclusive" else outcome
    return Cell("wrong", ", ".join(filter(None, [said, found["reason"][:300]])))


NOTHING = Cell("beyond", "nothing is to be changed")


def rehearse(at: Place) -> Cell:
    """The reload to what plan writes, and back, loses nothing."""
    if not _plan_of(at)["files"]:
        return NOTHING
    run = run_tool(
        *("rehearse", "--plan", at.plan, "--nginx", at.program, "--no-store", "-f", "json"),
        *("--before", "1s", "--after", "1s", "--drain", "3s"),
    )
    return Cell("right", "") if run.returncode == 0 else _failed(run)


def apply(at: Place) -> Cell:
    """A plan is put into a running nginx and kept."""
    return _apart_from_this_host(at, "apply")


def rollback(at: Place) -> Cell:
    """Every byte is as it was, and nginx serves."""
    return _apart_from_this_host(at, "rollback")


def _apart_from_this_host(at: Place, wanted: str) -> Cell:
    """One of the two cells that come of one run, in a network and process numbers of its own."""
    if not _plan_of(at)["files"]:
        return NOTHING
    kept = at.plan.with_name("applied.json")
    if wanted == "apply" or not kept.exists():
        words = (ROOT / "tests" / "own-namespaces", sys.executable, __file__)
        run = subprocess.run(
            [*map(str, words), at.top.parent.name, str(at.top.parents[1])],
            capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        if run.returncode:
            return _failed(run)
        kept.write_text(run.stdout)
    found = json.loads(kept.read_bytes())
    if wanted == "rollback":
        kept.unlink()
    return Cell(*found[wanted])


def apply_and_back(at: Place) -> dict[str, Cell]:
    """Start nginx on the site, apply its plan, and take it back."""
    pid = Path((re.search(r"(?m)^pid (\S+);", at.main.read_text()) or ["", ""])[1])
    program = own_executable(at.site.version.rpartition(".")[0], at.plan.parent)
    pid.unlink(missing_ok=True)
    server = subprocess.Popen([program, "-c", at.main], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not _is_master(pid):
        if time.monotonic() > deadline:
            return dict.fromkeys(("apply", "rollback"), Cell("wrong", "nginx did not start"))
        time.sleep(0.05)
    before, state = _bytes(at), at.plan.with_name("state")
    shutil.rmtree(state, ignore_errors=True)
    try:
        run = run_tool(
            *("apply", at.plan, "--nginx", program, "--pid", pid.read_text().strip()),
            *("--watch", "2s", "--trust", "--state-dir", state, "-f", "json"),
        )
        planned = {one["path"]: one["sha256_after"] for one in _plan_of(at)["files"]}
        kept = run.returncode == 0 and planned.items() <= _bytes(at).items()
        cells = {"apply": Cell("right", "") if kept else _failed(run)}
        run = run_tool("rollback", "--state-dir", state)
        back = run.returncode == 0 and _bytes(at) == before
        cells["rollback"] = Cell("right", "") if back else _failed(run)
        return cells
    finally:
        os.kill(int(pid.read_text()), signal.SIGTERM)
        server.wait(10)


def _is_master(pid: Path) -> bool:
    """Whether nginx runs and has its title, which comes after the file (ngx_process_cycle.c)."""
    number = pid.read_text().strip() if pid.exists() else ""
    title = Path(f"/proc/{number}/cmdline") if number else pid
    return bool(number) and title.exists() and title.read_bytes().startswith(b"nginx: master")


def _bytes(at: Place) -> dict[str, str]:
    """The files of the configuration by their hashes, and by their names with links."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in at.main.parent.rglob("*")
        if path.is_file()
    }


COMMANDS = (
    Command("nginx -t", nginx_test, is_run=True), Command("audit", audit),
    Command("audit of a checkout", checkout), Command("plan", plan),
    Command("recommend", recommend), Command("generate", generate), Command("explain", explain),
    Command("validate: better", validate_better, is_run=True, needs_fault=True),
    Command("validate: worse", validate_worse, is_run=True, needs_fault=True),
    Command("validate: equal", validate_equal, is_run=True, needs_fault=True),
    Command("rehearse", rehearse, is_run=True), Command("apply", apply, is_run=True),
    Command("rollback", rollback, is_run=True),
)  # fmt: skip


def beyond(command: Command, name: str) -> Cell | None:
    """Why a cell cannot be run here, or is not asked."""
    site = read_site(name)
    if command.needs_fault and site.fault is None:
        return Cell("beyond", "not among those that validate is asked about")
    if command.is_run and program_of(site) is None:
        return Cell("beyond", f"no {site.product} of this kind here")
    return None


def run_cell(command: Command, name: str, work: Path) -> Cell:
    """One cell, within its time."""
    if (found := beyond(command, name)) is not None:
        return found
    try:
        return command.run(place_of(name, work))
    except subprocess.TimeoutExpired as late:
        return Cell("wrong", f"not ended after {late.timeout:.0f} s")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(apply_and_back(place_of(sys.argv[1], Path(sys.argv[2])))))
