"""A lab that is open: its disks and what is around nginx."""

from __future__ import annotations

from typing import NamedTuple

from nginx_tune.nginx.lab.building import LabDisks
from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.nginx.lab.topology import Topology


class OpenLab(NamedTuple):
    """What a block needs of its lab."""

    disks: LabDisks
    topology: Topology
    enclosure: Enclosure
