"""What each disk is asked for, in the disk that the model reckons with."""

import pytest

from nginx_tune.decide.situation import Situation
from nginx_tune.documents.facts import Disk, Facts, PathStorage, Storage
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import ServedData, Workload

FACTS = Facts(
    storage=Storage(
        paths=[
            PathStorage(path="/srv/a", leaf_disks=["sda"]),
            PathStorage(path="/srv/b", leaf_disks=["nvme0n1"]),
        ],
        disks=[Disk(name="sda", class_="hdd"), Disk(name="nvme0n1", class_="nvme")],
    )
)
SITE = Site(roots=["/srv/a", "/srv/b"])


def latency(**asked: float) -> float:
    shares = {f"/srv/{name}": share for name, share in asked.items()}
    workload = Workload(kind="static", dataset=ServedData(requests_by_path=shares))
    return Situation(FACTS, workload, SITE).disk.latency_seconds


def test_a_disk_that_is_seldom_asked_is_seldom_waited_for() -> None:
    assert latency() == latency(a=1, b=1)
    assert latency(a=1) == pytest.approx(8e-3)
    assert latency(a=1, b=9) == pytest.approx(0.1 * 8e-3 + 0.9 * 0.09e-3)


def test_the_same_situation_with_other_requests_has_another_disk() -> None:
    first = Situation(FACTS, Workload(kind="static"), SITE)
    before = first.disk
    shares = {"/srv/b": 1.0}
    workload = Workload(kind="static", dataset=ServedData(requests_by_path=shares))
    assert first.with_workload(workload).disk.latency_seconds < before.latency_seconds
    assert first.with_workload(first.workload).disk is before
