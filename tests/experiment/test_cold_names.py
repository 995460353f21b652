"""Cold and warm names in a lab, shortly: what open() costs, and who still calls it."""

from importlib import resources
from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.documents.base import decode
from nginx_tune.documents.lab import Lab, LabData, LabDisk
from nginx_tune.documents.loadplan import Arrivals, Target
from nginx_tune.documents.measured_server import ServerMeasurement
from nginx_tune.documents.scenario import ScenarioClass, ScenarioRun
from nginx_tune.measure.load.classes import ServedFile, plan_load
from nginx_tune.nginx.lab.building import contents_of


def test_files_are_spread_over_directories() -> None:
    disk = LabDisk(name="a", mount="/srv/a")
    data = LabData(disk="a", files=5, file_bytes=10, directories=2, prefix="p-")
    contents = contents_of(Lab(disks=[disk], data=[data]), disk)
    assert list(contents.files) == [
        "d00000/p-f00000.bin", "d00001/p-f00001.bin", "d00000/p-f00002.bin",
        "d00001/p-f00003.bin", "d00000/p-f00004.bin",
    ]  # fmt: skip
    assert contents.directories == 3, "the root is one too"


def test_a_class_may_ask_for_the_first_files_alone() -> None:
    files = [ServedFile(f"/{number}", 1) for number in range(9)]
    arrivals = Arrivals(kind="closed", users=1)
    plan = plan_load(
        [
            ScenarioClass(
                name=name, source="random", connections=1, arrivals=arrivals, first_files=first
            )
            for name, first in (("all", None), ("few", 3))
        ],
        files,
        target=Target(port=80),
        memory_url=None,
    )
    asked = {item.name: item.paths.paths for item in plan.classes}
    assert asked == {"all": [f"/{n}" for n in range(1, 9)], "few": ["/1", "/2", "/3"]}


def shortened() -> str:
    """cold-open without the variant that is asked what nothing else is compared with."""
    text = (resources.files("nginx_tune") / "scenarios" / "cold-open.toml").read_text()
    head, *variants = text.split("\n[[arms]]")
    kept = [
        variant
        for variant in variants
        if 'name = "repeated"' not in variant.partition("[[arms.")[0]
    ]
    text = "\n[[arms]]".join([head, *kept]).partition("\n[[claims]]")[0]
    text = text.replace("files = 8000", "files = 1200").replace(
        "directories = 4000", "directories = 600"
    )
    return text.replace("warmup_seconds = 2.5", "warmup_seconds = 1.0")


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx", "loop", "fuse", "probe", "tracefs")
@pytest.mark.alone  # compares times, and the kernel traces process numbers of the host
def test_what_a_cold_open_waits_for_and_who_need_not_call_it(
    run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "short.toml"
    file.write_text(shortened())
    result = run_cli(
        "-q", "scenario", "run", file, "--pairs", "1", "--duration", "2s", "-f", "json",
        timeout=240,
    )  # fmt: skip
    assert result.returncode in {0, 1, 4}, result.stderr
    run = decode(ScenarioRun, result.stdout.encode())
    blocks = {block.variant: block for block in run.measurements}

    def opens(variant: str) -> ServerMeasurement:
        return blocks[variant].server

    for variant in ("baseline", "candidate", "warm-names"):
        calls = opens(variant).open_seconds
        assert calls is not None
        asked = blocks[variant].classes["files"].intended
        assert 0 < calls.count <= asked + 64, "each request opens its file once"
    cold, warm = opens("candidate").open_seconds, opens("warm-names").open_seconds
    assert cold is not None
    assert warm is not None
    # Milliseconds of a head that moves against microseconds of memory.
    assert (cold.mean or 0) > 5 * (warm.mean or 1)
    kept = opens("open-file-cache").open_seconds
    assert kept is not None
    assert kept.count < blocks["open-file-cache"].classes["files"].requests / 2
