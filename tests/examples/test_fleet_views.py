"""`examples/fleet/views.sql` by the real DuckDB, on made-up hosts whose faults are known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command_line
import pytest
from made_up_fleet import DAYS, change, keep, write_fleet
from prometheus_client.parser import text_string_to_metric_families
from started import running

from nginx_tune.documents.base import json_schema
from nginx_tune.documents.facts import Facts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VIEWS = Path(__file__).resolve().parents[2] / "examples/fleet/views.sql"
HOSTS = 60
"""Twenty of each role: one of them is the one in twenty that is an outlier."""

pytestmark = [pytest.mark.thorough, pytest.mark.needs("duckdb")]


def views_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> DuckDBPyConnection:
    """A database that has read the documents below ``folder/fleet``."""
    import duckdb  # noqa: PLC0415  # absent where the needs of this file are not met

    monkeypatch.chdir(folder)
    database = duckdb.connect()
    database.execute(VIEWS.read_text())
    return database


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    folder = tmp_path / "fleet"
    folder.mkdir()
    write_fleet(folder, HOSTS)
    return folder


def test_alike_hosts_have_no_outliers_and_no_drift(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that differs between them are counters, which the schema marks as volatile."""
    views = views_of(fleet.parent, monkeypatch)
    assert views.sql("FROM outliers").fetchall() == []
    assert views.sql("FROM drift").fetchall() == []
    assert views.sql("SELECT hosts FROM groups").fetchall() == [(20,)] * 3
    assert views.sql("SELECT hosts, fits FROM plans").fetchall() == [(20, 20)] * 3


def test_what_was_planted_is_found_and_nothing_else(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog = ("kernel", "sysctls", "net.core.somaxconn")
    change(fleet, "edge-0000", "facts", *backlog, to="128", days=2)
    change(fleet, "mirror-0005", "facts", "listeners", 2, "address", to="127.0.0.1", days=2)
    change(fleet, "blog-0001", "facts", "kernel", "release", to="9.9.9")
    change(fleet, "edge-0003", "plan", "files", 0, "sha256_before", to="0" * 64)
    found = json.loads((fleet / DAYS[1] / "edge-0006/findings.json").read_text())["findings"]
    new = {**found[0], "rule": "lim-conn-default", "severity": "warning"}
    change(fleet, "edge-0006", "findings", "findings", to=[*found, new])
    shutil.rmtree(fleet / DAYS[1] / "mirror-0008")
    (fleet / DAYS[1] / "blog-0004/findings.json").write_text('{"findings": [')

    views = views_of(fleet.parent, monkeypatch)
    main = "/etc/nginx/nginx.conf"
    outliers = views.sql("SELECT host, leaf, value FROM outliers").fetchall()
    assert {one for one in outliers if "listeners" not in one[1]} == {
        ("edge-0000", "kernel.sysctls.net.core.somaxconn", "128"),
        ("blog-0001", "kernel.release", "9.9.9"),
        ("edge-0003", main, "0" * 64),
    }
    lost = {(host, value) for host, leaf, value in outliers if "listeners[0.0.0.0:443]" in leaf}
    assert lost == {("mirror-0005", None)}, "it lacks what the others have"
    drift = views.sql("SELECT leaf, after, which FROM drift").fetchall()
    assert sorted(drift) == [
        (main, "0" * 64, ["edge-0003"]),
        ("kernel.release", "9.9.9", ["blog-0001"]),
    ]
    rules = views.sql("SELECT rule, came FROM findings_by_rule WHERE came + went > 0").fetchall()
    assert rules == [("lim-conn-default", 1)], "an unread document is not a finding that went"
    assert views.sql("SELECT host FROM unread").fetchall() == [("blog-0004",)]
    assert views.sql("SELECT host FROM hosts WHERE missed").fetchall() == [("mirror-0008",)]
    fits = views.sql("SELECT hosts, fits FROM plans WHERE plan LIKE '%edge%'").fetchall()
    assert fits == [(19, 19), (1, 1)], "the changed file makes it a plan of its own"

    text = "".join(f"{line}\n" for (line,) in views.sql("FROM metrics").fetchall())
    metrics = {
        (one.name.removeprefix("nginx_tune_fleet_"), one.labels.get("rule")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    assert metrics["outlier_hosts", None] == 4
    assert metrics["drifted_hosts", None] == 2
    assert metrics["missed_hosts", None] == 1
    assert metrics["unread_documents", None] == 1
    assert metrics["rule_hosts", "lim-conn-default"] == 1


@pytest.fixture
def looks(tmp_path: Path) -> Iterator[Any]:
    """Take this host's facts as those of a day."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "facts.schema.json").write_bytes(json_schema(Facts))

    def look(day: str) -> None:
        run = command_line.call("inspect", "-f", "json")
        keep(folder, day, "here", {"facts": json.loads(run.stdout)})

    return look


@pytest.mark.alone
@pytest.mark.needs("root", "nginx")
def test_a_host_that_nobody_changed_has_no_drift(
    looks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """Other processes, memory and counters, by a restart of its nginx, are marked in the schema."""
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"user root; pid {tmp_path}/pid; error_log {tmp_path}/log; daemon off;\n"
        f"events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{free_port}; }} }}\n"
    )
    for day in DAYS:
        with running(["nginx", "-c", conf]):
            (tmp_path / "dirty").write_bytes(bytes(1 << 24))
            looks(day)
    views = views_of(tmp_path, monkeypatch)
    assert views.sql("SELECT leaf, before, after FROM drift").fetchall() == []
    assert views.sql("SELECT count(*) > 100 FROM leaves WHERE age = 1").fetchall() == [(True,)]
