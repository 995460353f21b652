"""``probe --histogram``: refused before the load, shown below the report, written alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nginx_tune.cli.probe import command
from nginx_tune.documents.base import decode
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import UsageError
from nginx_tune.observe.window import watched

SEEN = Path(__file__).parent.parent / "proof" / "data" / "probe-measurement.json"
ASKED = ("http://127.0.0.1:9/", "--allow-live", "--duration", "1s")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans that were run; each gives the same measurement, of the class ``url``."""
    ran: list[Any] = []
    seen = json.loads(SEEN.read_text())
    seen["classes"] = {"url": seen["classes"]["hot"]}

    def run(plan: Any, *_: Any, **__: Any) -> Measurement:
        ran.append(plan)
        return decode(Measurement, json.dumps(seen).encode())

    monkeypatch.setattr(watched, "run_watched_probe", run)
    return ran


def run_probe(*arguments: str | Path) -> str:
    """What it prints. Errors: as the command's."""
    words = [*ASKED, *map(str, arguments)]
    found = CliRunner().invoke(command, words, obj={"verbose": 0, "quiet": True, "settings": {}})
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.stdout


@pytest.mark.parametrize("name", ["hot", "url.p99", "nothing"])
def test_what_is_no_latency_is_refused_before_the_load(loads: list[Any], name: str) -> None:
    with pytest.raises(UsageError, match=f"no latency '{name}'"):
        run_probe("--histogram", name)
    assert loads == []


def test_it_stands_below_the_report_and_loses_nothing(loads: list[Any], tmp_path: Path) -> None:
    whole = tmp_path / "m.json"
    shown = run_probe(
        "--histogram", "url", "--histogram", "url.ttfb", "-f", "console",
        "-f", f"json={whole}",
    )  # fmt: skip
    assert len(loads) == 1
    assert shown.index("last byte") < shown.index("\nurl\n") < shown.index("\nurl.ttfb\n")
    measured = decode(Measurement, whole.read_bytes()).classes["url"]
    assert f" {measured.response_seconds.count:,}\n" in shown.partition("\nurl\n")[2]
    assert "|█" not in run_probe()
