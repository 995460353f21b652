"""Gates on one run, and its figures for other programs."""

import csv
import io

import pytest
from command_line import RunCli
from probe_loads import Nginx

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.report.measurement import render_measurement_csv
from nginx_tune.report.prometheus import render_measurement_prometheus

SHORT = ("--allow-live", "--duration", "1s", "--warmup", "0", "--rate", "500")


@pytest.mark.needs("nginx", "probe")
def test_gates_decide_the_exit_status(nginx: Nginx, run_cli: RunCli) -> None:
    for gates, status, words in (
        (["mean <= 100s", "errors == 0", "total.requests >= 100"], 0, ""),
        (["mean <= 1us", "errors == 0"], 1, "gate failed: url.mean <= 1us"),
        # 500 samples are too few for a p99.9, and what is not measured never passes.
        (["p999 <= 1s", "mean <= 1us"], 4, "not measured: url.p999 <= 1s"),
        (["p98 <= 1s"], 2, "unknown metric"),
        (["ratio(url.mean) <= 1"], 2, "a single run"),
    ):
        options = [part for gate in gates for part in ("--require", gate)]
        run = run_cli("probe", nginx.url("/1k"), *SHORT, *options)
        assert run.returncode == status, (gates, run.stderr)
        assert words in run.stderr, gates
        if status in (0, 1):
            assert f"{'pass' if status == 0 else 'FAIL'}  url.mean" in run.stdout, gates


@pytest.mark.needs("nginx", "probe")
def test_seconds_and_figures_for_other_programs(nginx: Nginx, run_cli: RunCli) -> None:
    run = run_cli("probe", nginx.url("/1k"), *SHORT, "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(run.stdout)))
    assert [(row["second"], row["class"]) for row in rows] == [("0", "url")]
    assert int(rows[0]["requests"]) > 100
    assert 0 < float(rows[0]["p50_seconds"]) <= float(rows[0]["max_seconds"])
    run = run_cli("probe", nginx.url("/1k"), *SHORT, "-f", "prometheus")
    assert 'nginx_tune_probe_requests{class="url"} ' in run.stdout
    assert 'nginx_tune_probe_response_seconds{class="url",quantile="0.9"} ' in run.stdout
    # Of 500 samples five lie beyond a p99: that is none.
    assert 'quantile="0.99"' not in run.stdout


def test_names_of_classes_break_no_format() -> None:
    hostile = 'a",b\n=1\x1b'
    part = ClassMeasurement(requests=1, errors={"reset": 2})
    point = SeriesPoint(second=0, classes={hostile: ClassSecond(requests=1)})
    run = Measurement(classes={hostile: part}, series=[point])
    rows = list(csv.reader(io.StringIO(render_measurement_csv(run).decode())))
    assert len(rows) == 2
    assert len(rows[1]) == len(rows[0])
    assert "\x1b" not in rows[1][1]
    assert rows[1][-3:] == ["", "", ""]
    text = render_measurement_prometheus(run).decode()
    assert 'nginx_tune_probe_failures{class="a\\",b\\n=1' in text
    assert all(line.startswith(("#", "nginx_tune_probe_")) for line in text.splitlines())
