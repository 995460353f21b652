"""The facts of an emulated host."""

from __future__ import annotations

from nginx_tune.documents.facts import Cpu, Facts, Memory
from nginx_tune.documents.lab import Lab, LabDisk, LabLink
from nginx_tune.experiment.view import emulate

LAB = Lab(
    name="hdd",
    memory_bytes=192 << 20,
    disks=[LabDisk(name="d", mount="/srv/d", bytes_per_second=80 << 20, reads_per_second=400)],
)


def test_the_emulated_host_is_its_limits() -> None:
    real = Facts(cpu=Cpu(online=2), memory=Memory(total_bytes=24 << 30, available_bytes=20 << 30))
    facts = emulate(real, LAB, cpus=1)
    assert facts.memory.page_cache_limit_bytes == 192 << 20
    assert facts.cpu.effective == 1.0
    assert facts.storage.independent_disk_count == 1
    curve = facts.storage.disks[0].curve
    assert curve is not None
    assert curve.sequential_bytes_per_second == 80 << 20
    assert curve.provenance == "declared"


def test_a_link_of_the_lab_is_one_of_its_host() -> None:
    lab = Lab(name="l", topology="link", link=LabLink(bits_per_second=200_000_000))
    assert [x.speed_bits_per_second for x in emulate(Facts(), lab, cpus=1).network.links] == [2e8]
    assert emulate(Facts(), LAB, cpus=1).network.links == []
