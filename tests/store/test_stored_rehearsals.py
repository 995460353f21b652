"""Rehearsals among the stored runs: listed, shown, judged by other gates, never compared."""

import json

import msgspec
import pytest
from command_line import RunCli

from nginx_tune.documents.rehearsal import Phase, Rehearsal, RehearsedReload
from nginx_tune.experiment.store import Clock, list_runs, read_run, store_run
from nginx_tune.measure.proof.rehearsal import worst_outcome

THERE = RehearsedReload(
    manner="reload",
    outcome="taken",
    requests=990,
    failed={"reset": 7},
    phases=[Phase(name="during", requests=10, p50_seconds=0.002)],
)
BACK = RehearsedReload(manner="reload", is_back=True, outcome="refused", reason="[emerg] no")


@pytest.fixture
def run_id() -> str:
    rehearsal = Rehearsal(conf_path="/n.conf", nginx_version="1.22.1", reloads=[THERE, BACK])
    stored = store_run(rehearsal, kind="rehearse", name="/new.conf", clock=Clock())
    assert read_run(stored.id).result == rehearsal
    return stored.id


def test_its_outcome_is_that_of_its_worst_change(run_id: str) -> None:
    (summary,) = (one for one in list_runs().runs if one.id == run_id)
    assert (summary.kind, summary.outcome, summary.name) == ("rehearse", "refused", "/new.conf")
    assert (summary.nginx_version, summary.lab, summary.primary_metric) == ("1.22.1", "none", "")
    assert worst_outcome(Rehearsal(conf_path="/n", reloads=[THERE])) == "taken"
    before = [Phase(name="before", requests=100, max_seconds=3.0)]
    slow = msgspec.structs.replace(THERE, phases=before)
    assert worst_outcome(Rehearsal(conf_path="/n", reloads=[slow])) == "inconclusive"
    assert worst_outcome(Rehearsal(conf_path="/n")) == "refused"


def test_it_is_listed_shown_and_reported(run_id: str, run_cli: RunCli) -> None:
    (line,) = (one for one in run_cli("runs", "list").stdout.splitlines() if one.startswith(run_id))
    assert line.split()[-3:] == ["rehearse", "/new.conf", "refused"]
    shown = run_cli("runs", "show", run_id)
    assert "reload back: REFUSED, the old generation still serves: [emerg] no" in shown.stdout
    whole = json.loads(run_cli("runs", "show", run_id, "-f", "json").stdout)
    assert whole["result"]["turnovers"][0]["failed"] == {"reset": 7}
    assert "Rehearsal of /n.conf" in run_cli("report", run_id).stdout


def test_it_is_judged_by_other_gates(run_id: str, run_cli: RunCli) -> None:
    for options, status, said in (
        (("--require", "reload.failed <= 7"), 1, "reload.failed <= 7"),  # one was refused
        (("--require", "upgrade.failed == 0"), 2, "no 'upgrade'; one of reload, reload_back"),
        (("--primary", "hot.mean"), 2, "a rehearsal has no primary metric"),
        (("--histogram", "hot"), 2, "a rehearsal keeps no histograms"),
    ):
        run = run_cli("runs", "show", run_id, *options)
        assert run.returncode == status, (options, run.stderr)
        assert said in run.stdout + run.stderr, options


def test_it_is_compared_with_nothing(run_id: str, run_cli: RunCli) -> None:
    run = run_cli("compare", run_id, run_id)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1)
    assert f"run {run_id} is a rehearsal" in run.stderr
