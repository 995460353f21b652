"""Results that go to a named pipe, and names of results that are none."""

import os
import threading
from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.errors import UsageError
from nginx_tune.report.terminal import output

CONF = Path(__file__).resolve().parents[1] / "conf" / "valid" / "one-line.conf"


@pytest.mark.parametrize("is_open", [False, True])
def test_a_pipe_that_nobody_reads_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_open: bool
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    held = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if is_open else None
    monkeypatch.setattr(output, "READER_SECONDS", 0.2)
    with pytest.raises(UsageError, match="nothing was read"):
        output.write_file(path, b"x" * (1 << 20))
    if held is not None:
        os.close(held)


def test_a_reader_that_comes_gets_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    output.write_file(path, b"x" * (1 << 20))
    reader.join(10)
    assert [len(one) for one in found] == [1 << 20]


def test_a_format_with_an_empty_name_is_refused(run_cli: RunCli, tmp_path: Path) -> None:
    run = run_cli("audit", CONF, "-f", "json=")
    assert (run.returncode, run.stdout) == (2, "")
    assert "the file name is missing" in run.stderr
    assert run_cli("audit", CONF, "-f", f"json={tmp_path}/x").returncode == 0


def test_an_overlay_is_no_larger_than_a_configuration_can_be(
    run_cli: RunCli, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    with new.open("wb") as file:
        file.truncate((256 << 20) + 1)
    run = run_cli("audit", CONF, "--overlay", f"{CONF}={new}")
    assert (run.returncode, "more than 256 MiB" in run.stderr) == (2, True)
