"""The command that sizes hosts: its inputs, its formats, and the scenario that it writes."""

import io
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rows import each_row
from situations import GIBIBYTE, KIBIBYTE, host, load, measured

from nginx_tune.cli.main import cli
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.scenario import Scenario
from nginx_tune.documents.sizing import Sizing
from nginx_tune.documents.workload import Objective
from nginx_tune.experiment.scenario.files import check_scenario
from nginx_tune.report.page.render import embedded_documents
from nginx_tune.report.size import sizing_screen
from nginx_tune.report.terminal.writer import lay_out

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def inputs(tmp_path: Path) -> list[object]:
    """Facts of two measured disks, and a workload with an objective of its own."""
    facts, workload = tmp_path / "facts.json", tmp_path / "workload.json"
    facts.write_bytes(encode(measured(host(disks=2, memory_bytes=16 * GIBIBYTE), 0.008, 120e6)))
    asked = load(
        data_bytes=40 * GIBIBYTE, file_bytes=64 * KIBIBYTE, exponent=0.7, peak=None, rate=90
    )
    asked = msgspec.structs.replace(
        asked,
        objectives=[
            Objective(expression="hot.requests_per_second >= 10"),
            Objective(expression="p99 <= 80ms"),
        ],
    )
    workload.write_bytes(encode(asked))
    return ["--facts", facts, "--workload", workload, "--root", "/srv/1", "--root", "/srv/2"]


def test_every_format_has_the_same_answer(
    run_cli: RunCli, inputs: list[object], tmp_path: Path
) -> None:
    files = {name: tmp_path / f"size.{name}" for name in ("json", "scenario")}
    run = run_cli(
        "size", *inputs, "--price", "memory=4/16G", "--price", "hdd=10", "--price", "ssd=45.5",
        "-f", "console",
        *(word for name, file in files.items() for word in ("-f", f"{name}={file}")),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    sizing = decode(Sizing, files["json"].read_bytes())
    assert (sizing.objective, sizing.asked_per_second) == ("p99 <= 80ms", 90)
    assert [one.class_name for one in sizing.columns] == ["hdd", "hdd", "hdd", "ssd"]
    assert sizing.cheapest is not None
    assert run.stdout.startswith("This host ")
    shown = {form: tmp_path / f"page.{form}" for form in ("html", "md")}
    for page in shown.values():
        assert run_cli("report", files["json"], "-o", page).returncode == 0
    page = shown["html"].read_text()
    (embedded,) = embedded_documents(page, source="page")
    assert decode(Sizing, embedded) == sizing
    assert page.count('class="curves"') == 2
    assert "this host" in shown["md"].read_text()
    # What the last line says is what the command line takes.
    size, _, scenario = sizing.prove_command.partition(" && ")
    words = shlex.split(size)
    group = cli.make_context("nginx-tune", ["size", "--help"], resilient_parsing=True)
    command = cli.get_command(group, "size")
    assert command is not None
    parsed = command.make_context("size", words[2:], resilient_parsing=True).params
    assert parsed["prices"] == ("memory=4/16G", "hdd=10", "ssd=45.5")
    assert scenario == "sudo nginx-tune scenario run ./proof.toml"
    written = msgspec.toml.decode(files["scenario"].read_bytes(), type=Scenario)
    check_scenario(written)
    assert written.claims[0].expression == "files.p99 <= 0.08s"


@each_row("width", [60, 100, 140])
def test_the_screen_is_as_wide_as_the_terminal(
    run_cli: RunCli, inputs: list[object], width: int
) -> None:
    run = run_cli("size", *inputs, "-f", "json")
    screen = sizing_screen(decode(Sizing, run.stdout.encode()))
    # The last block has commands, whose words stay whole.
    text = lay_out(screen[:-1], Console(file=io.StringIO(), width=width), verbose=False)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) <= 60


@each_row(
    ("words", "status", "said"),
    [
        (["--price", "memory=3"], 2, "memory=AMOUNT/SIZE"),
        (["--price", "tape=3"], 2, "only memory and classes of disks"),
        (["--price", "ssd=-1"], 2, "CLASS=AMOUNT"),
        (["--objective", "p99 >= 5ms"], 2, "not an upper limit on the time"),
        (["--objective", "hot.errors == 0"], 2, "complete response"),
        (["--objective", "p99 <= 50"], 2, "50"),
        (["--rate", "0"], 2, "rate 0: not a rate"),
        (["--rate", "1e9x"], 2, "rate 1e9x: not a rate"),
        (["--rate", "8G"], 2, "a bandwidth such as 8Gbit/s"),
        (["--kind", "proxy"], 4, "proxy"),
    ],
)
def test_bad_input_is_one_line(
    run_cli: RunCli, inputs: list[object], words: list[str], status: int, said: str
) -> None:
    run = run_cli("size", *inputs, *words)
    assert (run.returncode, run.stdout) == (status, "")
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_a_bandwidth_is_a_rate_by_the_mean_size(run_cli: RunCli, inputs: list[object]) -> None:
    """Answers of 64 KiB: 90 of them a second are 47.2 Mbit/s."""
    rate = run_cli("size", *inputs, "--rate", "90", "-f", "json")
    bandwidth = run_cli("size", *inputs, "--rate", "47.18592Mbit/s", "-f", "json")
    assert bandwidth.returncode == 0, bandwidth.stderr
    assert json.loads(bandwidth.stdout)["asked_per_second"] == 90
    assert bandwidth.stdout.replace("--rate 47.18592Mbit/s", "--rate 90") == rate.stdout
    alone = run_cli("size", "--memory", "8G", "--data", "90G", "--rate", "8Gbit/s")
    assert "a bandwidth needs the mean size of an answer (--mean-size)" in alone.stderr
    assert "Mbit/s of answers of 64.0 KiB" in run_cli("size", *inputs).stdout


def test_bytes_that_are_not_sent_take_no_bandwidth(run_cli: RunCli, tmp_path: Path) -> None:
    """Ranges of a quarter: the link of 10 Gbit/s is full with four times the requests."""
    words = ["--cpus", "64", "--memory", "64G", "--disk", "nvme:4:1T", "--data", "20G"]
    told = {"schema": "nginx-tune/workload/1", "sizes": {"mean_bytes": 4 << 20, "sent_ratio": 0.25}}
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps(told))
    found = run_cli("size", *words, "--link", "10G", "--workload", str(workload))
    carried = re.search(r"\((.*?) Gbit/s of answers of 1.0 MiB\)", found.stdout)
    assert carried, found.stdout + found.stderr
    assert 5 < float(carried[1]) <= 10


def test_what_no_lab_can_show_names_no_command(run_cli: RunCli) -> None:
    """A command that is printed runs: here the scenario would ask for more than a lab sends."""
    described = (
        "--cpus", "4", "--memory", "8G", "--disk", "ssd", "--link", "10G", "--data", "90G",
        "--mean-size", "100K", "--rate", "9000", "--objective", "p99 <= 1s",
    )  # fmt: skip
    found = json.loads(run_cli("size", *described, "-f", "json").stdout)
    assert found["prove_command"] == ""
    assert "more than a lab" in found["no_proof"]
    run = run_cli("size", *described, "-f", "scenario")
    assert (run.returncode, run.stdout) == (4, "")
    assert "more than a lab" in run.stderr


@each_row(
    ("objective", "has_figure", "headline"),
    [
        ("p99 <= 200ms", True, r"carries perhaps \d+/s within p99 <= 200ms, but any value from "),
        ("hot.p99 <= 5ms", True, r"carries perhaps \d+/s within hot.p99 <= 5ms, but any value "),
        ("p99 <= 30s", True, r"carries (perhaps )?\d+/s .*within p99 <= 30s"),
        ("p99 <= 10us", False, (r"no rate .*: without load its p99 is \d.* ms \[.*\]; without the "
         r"objective it keeps up with \d+/s \[")),
        ("p99 <= 30ms", True, (r"no rate .*: without load its p99 is \d.* ms \[.*\]; at best it "
         r"carries \d+/s; ")),
    ],
)  # fmt: skip
def test_a_host_in_one_line_has_a_figure_for_every_objective(
    run_cli: RunCli, objective: str, has_figure: bool, headline: str
) -> None:
    """This host keeps its column where the range is too wide for a prediction."""
    run = run_cli(
        "size", "--memory", "64G", "--disk", "hdd:4", "--data", "2TB", "--mean-size", "1M",
        "--rate", "500", "--objective", objective,
    )  # fmt: skip
    answer, *lines = run.stdout.splitlines()
    assert re.search(headline, answer), answer
    rows = [line for line in lines if line.startswith("64.0 GiB (this host)")]
    assert [bool(re.search(r"GiB \(this host\)  \S+ \d+/s.* \[", row)) for row in rows] == (
        [True] if has_figure else []
    )


def test_a_host_in_one_line_is_declared(run_cli: RunCli) -> None:
    run = run_cli(
        "size", "--cpus", "4", "--memory", "8G", "--disk", "ssd", "--link", "1G", "--data", "90G",
        "--mean-size", "100K", "--rate", "5000", "-f", "json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert {one["provenance"] for one in found["evidence"]} == {"declared", "assumed"}
    assert found["least_link_bits_per_second"] == 5_000_000_000


def test_cpus_that_nobody_declared_are_assumed(run_cli: RunCli) -> None:
    described = ("--memory", "16G", "--disk", "nvme:4", "--data", "200G", "--mean-size", "1M")
    alone = run_cli("size", *described).stdout
    assert alone.splitlines()[0].endswith("; the CPUs are the limit (1 CPU is assumed).")
    (assumed,) = (line for line in alone.splitlines() if line.startswith("assumed "))
    assert ", 1 CPU (--cpus), " in assumed
    declared = run_cli("size", *described, "--cpus", "1").stdout
    assert "worker processes 1" in declared
    assert "1 CPU" not in declared


@each_row(
    ("words", "said"),
    [
        # Answers of 4 MiB, 95 % of 1 and of 10 Gbit/s: 28 and 283 a second.
        (["--link", "1G", "--rate", "250"], "250/s need at least a link of 10 Gbit/s; other "),
        (["--link", "10G", "--rate", "500"], "500/s need at least a link of 25 Gbit/s; other "),
        (["--link", "100G", "--rate", "3000", "--cpus", "2"], "3,000/s need at least "),
        (["--link", "1G"], "Other memory or disks carry no more; a faster link does."),
        (["--link", "10G", "--rate", "250"], "The smallest host of the table that carries 250/s: "),
        (
            ["--link", "10G", "--rate", "250", "--disk", "ssd:4"],
            "The smallest host of the table that carries 250/s: ",
        ),
    ],
)
def test_the_answer_names_a_link_that_is_too_slow(
    run_cli: RunCli, words: list[str], said: str
) -> None:
    run = run_cli(
        "size",
        "--memory",
        "64G",
        "--data",
        "6TB",
        "--mean-size",
        "4M",
        *words,
        *(() if "--disk" in words else ("--disk", "hdd:4")),
    )
    first, second, *rest = run.stdout.splitlines()
    assert second.startswith(said)
    rows = [line for line in rest if re.match(r"[0-9.]+ [GT]iB ", line)]
    assert len(rows) == (1 if "1G" in words else 5)
    assert ("no lab" in run.stdout, "Next: " in run.stdout) == (
        False, "The smallest" in second or "Other" in second
    )  # fmt: skip
    if "The smallest" in second:  # the link is fast enough: it is not named as the limit
        assert "may or may not" in first
        assert first.endswith("the disks are the limit.")
        assert "need" not in run.stdout.partition("Next: ")[0]
