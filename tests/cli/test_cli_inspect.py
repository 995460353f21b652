"""``nginx-tune inspect`` as a user runs it."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from command_line import RunCli
from recorded_hosts import capture_file, facts_bytes, freebsd_file

from nginx_tune.documents.base import decode
from nginx_tune.documents.facts import Facts
from nginx_tune.errors import UsageError


def test_this_host_as_json(run_cli: RunCli) -> None:
    said = run_cli("inspect", "-f", "json")
    assert said.returncode == 0
    facts = json.loads(said.stdout)
    assert facts["schema"] == "nginx-tune/facts/1"
    assert facts["kernel"]["system"] == "Linux"
    assert facts["cpu"]["online"] == os.cpu_count()
    assert facts["storage"]["paths"]
    assert any(link["name"] == "lo" for link in facts["network"]["links"])


def test_one_screen_for_people(run_cli: RunCli, tmp_path: Path) -> None:
    said = run_cli("inspect", "--host", capture_file("three-disk-node", tmp_path))
    assert said.returncode == 0
    assert "3 independent disks" in said.stdout
    assert "10 Gbit/s" in said.stdout
    assert "nginx 1.26.3, with threads" in said.stdout
    assert len(said.stdout.splitlines()) <= 40
    assert "\x1b" not in said.stdout


@pytest.mark.needs("root")
def test_an_ordinary_user_gets_facts_too(run_cli: RunCli) -> None:
    """Without any right beyond its own: fewer facts, a reason for each that is missing."""
    code = (
        "import os, sys; from nginx_tune.cli.main import main; "
        "main(['inspect', '-f', 'json', '-o', '/dev/null']); os.setuid(65534); "
        "sys.exit(main(['inspect', '-f', 'json']))"
    )
    import sys  # noqa: PLC0415

    # Where every user may look: the checkout may be in root's home.
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["memory"]["total_bytes"]


def test_a_capture_replays_byte_for_byte(run_cli: RunCli, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_bytes(b"x" * 12345)
    capture = tmp_path / "host.json"
    live = run_cli("inspect", "--dataset", data, "--capture", capture, "-f", "json")
    assert live.returncode == 0, live.stderr
    assert stat.S_IMODE(capture.stat().st_mode) == 0o600
    (data / "file").unlink()
    replayed = run_cli("inspect", "--host", capture, "-f", "json", cwd=Path("/"))
    assert replayed.stdout == live.stdout
    assert json.loads(live.stdout)["datasets"][0]["bytes"] == 12345


def test_a_capture_does_not_widen_a_file_that_was_there(run_cli: RunCli, tmp_path: Path) -> None:
    capture = tmp_path / "host.json"
    capture.touch(mode=0o644)
    assert run_cli("inspect", "--capture", capture).returncode == 0
    assert stat.S_IMODE(capture.stat().st_mode) == 0o600


def test_facts_go_to_a_file_and_a_screen_at_once(run_cli: RunCli, tmp_path: Path) -> None:
    host = capture_file("virtio-vm", tmp_path)
    said = run_cli("inspect", "--host", host, "-f", "console", "-f", f"json={tmp_path}/facts.json")
    assert said.returncode == 0
    assert "virtio" in said.stdout
    assert (tmp_path / "facts.json").read_bytes() == facts_bytes("virtio-vm")


def test_a_sampled_dataset_tells_its_error(run_cli: RunCli, tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / str(number)).write_bytes(b"x" * (number % 97))
    arguments = ("inspect", "--dataset", tmp_path, "--dataset-sample", "0.2")
    (dataset,) = json.loads(run_cli(*arguments, "-f", "json").stdout)["datasets"]
    assert dataset["files"] == 2000
    assert dataset["sample_ratio"] == 0.2
    assert 0 < dataset["bytes_error_ratio"] < 0.3
    assert "±" in run_cli(*arguments).stdout


def test_a_capture_holds_configurations_only_when_asked(run_cli: RunCli, tmp_path: Path) -> None:
    plain, full = tmp_path / "plain.json", tmp_path / "full.json"
    assert run_cli("inspect", "--capture", plain).returncode == 0
    assert run_cli("inspect", "--capture", full, "--with-config").returncode == 0
    asked = [set(json.loads(path.read_text())["answers"]) for path in (plain, full)]
    assert not any(question.endswith(".conf") for question in asked[0])
    if Path("/etc/nginx/nginx.conf").exists():
        assert any(question.endswith(".conf") for question in asked[1])


def test_a_declared_link_speed(run_cli: RunCli, tmp_path: Path) -> None:
    capture = capture_file("virtio-vm", tmp_path)
    arguments = ("--host", capture, "--link-speed", "eth0=2.5G", "-f", "json")
    said = run_cli("inspect", *arguments)
    links = {link["name"]: link for link in json.loads(said.stdout)["network"]["links"]}
    assert links["eth0"]["speed_bits_per_second"] == 2_500_000_000
    assert links["eth0"]["speed_reason"] == "declared"


def test_a_declared_volume(run_cli: RunCli, tmp_path: Path) -> None:
    """Nothing on the host tells what was bought."""
    capture = capture_file("ebs-volume", tmp_path)
    plain = json.loads(run_cli("inspect", "--host", capture, "-f", "json").stdout)
    name = plain["storage"]["disks"][0]["name"]
    said = ("--volume", f"{name}=gp3,6000,250m", "-f", "json")
    (disk, *_) = json.loads(run_cli("inspect", "--host", capture, *said).stdout)["storage"]["disks"]
    assert disk["volume"] == {
        "type": "gp3",
        "reads_per_second": 6000,
        "bytes_per_second": 250 << 20,
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dataset", "/no/such/tree"], "dataset /no/such/tree: No such file or directory"),
        (["--dataset", "/etc/passwd"], "Not a directory"),
        (["--nginx", "/no/such/nginx"], "/no/such/nginx: cannot run nginx"),
        (["--nginx", "/bin/ls"], "/bin/ls: not nginx"),
        (["--pid", "1"], "not a visible nginx master"),
        (["--pid", "0"], "--pid"),
        (["--link-speed", "eth0"], "not IF=SPEED"),
        (["--link-speed", "eth0=fast"], "not a link speed"),
        (["--link-speed", "nolink0=1G"], "no network link 'nolink0'"),
        (["--volume", "sda"], "not DISK=TYPE"),
        (["--volume", "sda=gp9"], "types: gp3, gp2"),
        (["--volume", "sda=gp3,fast"], "not READS"),
        (["--volume", "nodisk0=gp3"], "no disk 'nodisk0'"),
        (["--host", "/no/such/capture"], "cannot read"),
        (["--host", "FACTS"], "expected a document of schema"),
        (["--host", "x", "--capture", "y"], "exclude"),
        (["--capture", "-"], "needs a file"),
        (["--with-config"], "--with-config needs a capture"),
        (["--dataset-sample", "0"], "--dataset-sample"),
        (["--dataset-sample", "1.5"], "--dataset-sample"),
        (["-f", "yaml"], "unknown format"),
        (["--capture", "/no/such/dir/capture"], "cannot write"),
    ],
)
def test_wrong_usage_is_one_line(
    run_cli: RunCli, tmp_path: Path, arguments: list[str], says: str
) -> None:
    arguments = [str(freebsd_file(tmp_path)) if one == "FACTS" else one for one in arguments]
    said = run_cli("inspect", *arguments)
    assert said.returncode == 2
    assert said.stdout == ""
    assert says in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_a_hostile_capture_cannot_steer_the_terminal(run_cli: RunCli) -> None:
    evil = "\x1b]0;gotcha\x07\x1b[31m\u202e"
    mountinfo = f"28 1 8:1 / /srv{evil} rw - ext4 /dev/{evil} rw\n"
    capture = {
        "schema": "nginx-tune/capture/1",
        "answers": {
            "read /proc/self/mountinfo": {"value": mountinfo},
            "read /proc/sys/kernel/osrelease": {"value": f"6.1{evil}"},
            "links": {"value": [{"name": evil, "kind": "[red]", "state": evil}]},
        },
    }
    said = run_cli("inspect", "--host", "-", stdin=json.dumps(capture))
    assert said.returncode == 0, said.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(said.stdout)


def test_a_capture_in_the_place_of_facts_is_named_with_the_command_that_makes_them() -> None:
    capture = b'{"schema": "nginx-tune/capture/1"}'
    with pytest.raises(UsageError) as refused:
        decode(Facts, capture)
    assert "inspect --host CAPTURE -f json" in refused.value.hint
