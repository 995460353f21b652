"""What nginx would wait at for ever is named before it is started."""

import os
from pathlib import Path

import pytest
from command_line import RunCli
from twins import twin

LINES = [
    "error_log {path};\nevents {{ }}\nhttp {{ server {{ listen 8098; root {root}; }} }}\n",
    "events {{ }}\nhttp {{ access_log {path}; server {{ listen 8098; root {root}; }} }}\n",
    "events {{ }}\nhttp {{ auth_basic_user_file {path}; server {{ root {root}; }} }}\n",
]


@pytest.mark.needs("nginx", "root")
def test_a_pipe_among_the_files_is_named(run_cli: RunCli, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("x")
    conf = tmp_path / "nginx.conf"
    for line in LINES:
        conf.write_text(line.format(path=pipe, root=root))
        for words in (
            ("audit", conf, "--test"),
            ("validate", conf, "--against", twin(conf), "--pairs", "1"),
        ):
            said = run_cli(*words)
            assert said.returncode == 3, (line, words)
            assert f"{pipe}: a FIFO, not a file" in said.stderr, (line, words)
            assert "Traceback" not in said.stderr


@pytest.mark.needs("nginx", "root")
def test_devices_that_take_logs_are_no_obstacle(run_cli: RunCli, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(LINES[1].format(path="/dev/null", root=tmp_path))
    assert run_cli("audit", conf, "--test", "--fail-on", "never").returncode == 0


@pytest.mark.needs("nginx", "root")
def test_logs_to_the_standard_streams_are_nginxs_own(run_cli: RunCli, tmp_path: Path) -> None:
    """Images log there; ours are pipes here, as they are in CI."""
    link = tmp_path / "error.log"
    link.symlink_to("/dev/stderr")
    conf = tmp_path / "nginx.conf"
    for stream in ("/dev/stdout", "/proc/self/fd/2", link):
        conf.write_text(
            f"error_log {stream};\nevents {{ }}\n"
            f"http {{ access_log {stream}; server {{ listen 8098; return 200 x; }} }}\n"
        )
        said = run_cli("audit", conf, "--test", "--select", "cf-*")
        assert said.returncode == 0, (stream, said.stderr)
        assert "nginx -t accepts it" in said.stdout, stream


@pytest.mark.needs("nginx", "root", "probe")
def test_a_configuration_that_logs_to_them_is_measured(run_cli: RunCli, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "error_log /dev/stderr info;\nevents { }\nuser root;\n"
        "http { access_log /dev/stdout; server { listen 127.0.0.1:8098; return 200 x; } }\n"
    )
    said = run_cli(
        "validate", conf, "--against", twin(conf), "--pairs", "1", "--duration", "1s", "--warmup",
        "0.1s", "--no-store", "--accept-inconclusive",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
