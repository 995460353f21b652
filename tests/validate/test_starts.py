"""What of a lab's data is in memory as each block of ``validate`` starts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import RunCli
from twins import twin

FILES, FILE_BYTES = 512, 131_072
MEMORY_BYTES = 32 << 20
SHORT = ("--pairs", "1", "--duration", "500ms", "--warmup", "100ms", "--accept-inconclusive")
CONF = (
    "user root; events { } http { access_log off; server { listen 8080; root /srv/files; "
    'location = /healthz { return 200 "ok"; } } }'
)
LAB = f"""
name = "drawn"
{{memory}}
[[disks]]
name = "disk1"
class_name = "memory"
[[data]]
disk = "disk1"
files = {FILES}
file_bytes = {FILE_BYTES}
"""


class Ran(NamedTuple):
    """A validation's verdict and the bytes that were in memory as its blocks started."""

    starts: str | None
    resident: list[int]
    screen: str


@pytest.fixture
def validate(run_cli: RunCli, tmp_path: Path) -> Callable[..., Ran]:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)

    def run(lab_memory: str, *words: str) -> Ran:
        lab = tmp_path / "lab.toml"
        lab.write_text(LAB.format(memory=lab_memory))
        env = {"XDG_STATE_HOME": str(tmp_path / "state")}
        said = tmp_path / "verdict.json"
        done = run_cli(
            "-q", "validate", conf, "--against", twin(conf), "--lab", lab, *SHORT, *words,
            "-f", f"json={said}", "-f", "console", env=env,
        )  # fmt: skip
        assert done.returncode in {0, 4}, done.stderr
        stored = json.loads(run_cli("runs", "show", "last", "-f", "json", env=env).stdout)
        blocks: list[dict[str, Any]] = stored["result"]["measurements"]
        verdict = json.loads(said.read_text())
        resident = [block["server"]["resident_bytes_before"] for block in blocks]
        return Ran(verdict["environment"].get("starts"), resident, done.stdout)

    return run


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx", "probe", "loop", "ip")
def test_memory_holds_what_it_would_in_the_long_run(validate: Callable[..., Ran]) -> None:
    whole = FILES * FILE_BYTES
    fits = validate("")
    assert fits.starts == "warm"
    assert min(fits.resident) > 0.98 * whole, fits
    assert "all data in memory at the start" in fits.screen
    part = validate(f"memory_bytes = {MEMORY_BYTES}")
    assert part.starts == "full"
    # What else the group has in memory, and what the kernel has yet to give back, is little.
    assert all(MEMORY_BYTES // 2 < one < MEMORY_BYTES for one in part.resident), part
    empty = validate("", "--starts", "cold")
    assert (empty.starts, {*empty.resident}) == ("cold", {0})


def test_this_machines_memory_is_left_as_it_is(run_cli: RunCli, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF)
    refused = run_cli("validate", conf, "--against", twin(conf), "--starts", "cold")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--starts needs --lab" in refused.stderr
