"""A workload that cannot be meant: one line that names the file and the field, exit status 2."""

from pathlib import Path

import pytest
from command_line import RunCli
from recorded_hosts import facts_file

FACTS = facts_file("raid10-4hdd")
TIME = "a time needs its unit: 50 ms or s? (write"


def refused(run_cli: RunCli, *words: str) -> str:
    done = run_cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def written(folder: Path, text: str) -> str:
    path = folder / "w.json"
    path.write_text(f'{{"schema": "nginx-tune/workload/1", {text}}}', encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("command", ["recommend", "generate", "plan", "explain"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"rate": {"peak_per_second": 1e308}', "- at `$.rate.peak_per_second`"),
        ('"connection_reuse": {"requests_per_connection": 0}', "requests_per_connection`"),
        ('"objectives": [{"expression": "hot.p99 <= 50"}]', f"objectives: 'hot.p99 <= 50': {TIME}"),
    ],
)
def test_each_command_that_takes_one_refuses_it(
    run_cli: RunCli, tmp_path: Path, command: str, text: str, said: str
) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {} http { server { root /srv; } }", encoding="utf-8")
    more = {"plan": [str(conf)], "explain": ["thread-pools"]}.get(command, [])
    workload = written(tmp_path, text)
    line = refused(run_cli, command, *more, "--facts", str(FACTS), "--workload", workload)
    assert line.startswith(f"nginx-tune: {workload}: ")
    assert said in line


def test_an_objective_without_a_class_is_told_as_it_was_written(
    run_cli: RunCli, tmp_path: Path
) -> None:
    workload = written(tmp_path, '"objectives": [{"expression": "p99 <= 50"}]')
    line = refused(run_cli, "recommend", "--facts", str(FACTS), "--workload", workload)
    assert f"objectives: 'p99 <= 50': {TIME} 'p99 <= 50ms' or 'p99 <= 50s'; units: ns, us" in line
    fine = '"objectives": [{"expression": "p99 <= 50ms"}, {"expression": "hot.errors == 0"}]'
    workload = written(tmp_path, fine)
    assert run_cli("recommend", "--facts", str(FACTS), "--workload", workload).returncode == 0


def test_a_number_of_a_site_has_bounds(run_cli: RunCli, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    for text in ("log_files = -1", "stream_silence_seconds = 1e300", "listening_sockets = true"):
        site.write_text(text, encoding="utf-8")
        line = refused(run_cli, "generate", "--facts", str(FACTS), "--site", str(site))
        assert f"- at `$.{text.partition(' ')[0]}`" in line
