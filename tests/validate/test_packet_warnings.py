"""Settings about packets, tried over a link whose packets are unlike a network's."""

import json
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli

from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.documents.lab import Lab
from nginx_tune.experiment.validate.workbench_notes import packet_warnings

CONF = """
events {}
http {
    access_log off;
    %s
    server { listen 127.0.0.1:18934; root %s; }
}
"""
LOOPBACK = Lab(name="l")
LINK = msgspec.structs.replace(LOOPBACK, topology="link")


def tree(lines: str) -> ConfTree:
    return parse_text(f"events {{}} http {{ {lines} server {{ location / {{ }} }} }}")


def test_it_is_told_what_the_link_may_turn_round() -> None:
    for baseline, candidate, named in (
        ("sendfile on;", "sendfile on; tcp_nopush on;", "tcp_nopush"),
        ("sendfile on; tcp_nopush on;", "sendfile off;", "sendfile, tcp_nopush"),
        ("tcp_nodelay off;", "tcp_nodelay on;", "tcp_nodelay"),
        ("", "postpone_output 0;", "postpone_output"),
    ):
        (said,) = packet_warnings(LOOPBACK, [tree(baseline), tree(candidate)])
        assert f"differ in {named}, and" in said
        assert packet_warnings(LINK, [tree(baseline), tree(candidate)]) == [], named


def test_nothing_is_told_of_other_differences() -> None:
    for baseline, candidate in (
        ("tcp_nopush on;", "tcp_nopush on; aio threads;"),
        ("", "tcp_nopush off; tcp_nodelay on; sendfile off; postpone_output 1460;"),
    ):
        assert packet_warnings(LOOPBACK, [tree(baseline), tree(candidate)]) == [], candidate


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx", "probe")
def test_a_run_says_so_before_what_its_blocks_say(run_cli: RunCli, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    root = tmp_path / "www"
    root.mkdir()
    (root / "a.bin").write_bytes(bytes(20_000))
    for name, lines in (("old", ""), ("new", "sendfile on;")):
        (tmp_path / f"{name}.conf").write_text(CONF % (lines, root))
    run = run_cli(
        *("validate", "new.conf", "--against", "old.conf", "--no-store", "-f", "json"),
        *("--pairs", "2", "--duration", "300ms", "--warmup", "100ms"),
        cwd=tmp_path,
    )
    assert json.loads(run.stdout)["warnings"][0].startswith(
        "the configurations differ in sendfile, and"
    )
