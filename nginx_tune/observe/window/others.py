"""Other nginx that run beside the one that is watched: what they did meanwhile."""

from __future__ import annotations

from msgspec.structs import replace

from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.observation import Observation, OtherNginx, busier_other
from nginx_tune.host.door import Host, Missing
from nginx_tune.nginx.processes import Master, find_host_masters
from nginx_tune.observe.processes import read_cpu_seconds
from nginx_tune.observe.window.window import difference, sum_known


class Others:
    """All that run but the one, from now on."""

    def __init__(self, host: Host, nginx: Nginx, watched: int) -> None:
        self._masters = [one for one in find_host_masters(host) if one.pid != watched]
        self._reasons = {one.pid: one.reason for one in nginx.candidates if one.pid}
        self._before = {one.pid: _cpu_seconds(one) for one in self._masters}

    def finish(self) -> list[OtherNginx]:
        """What each used; null where workers came or went."""
        return [
            OtherNginx(
                pid=one.pid,
                binary=None if isinstance(one.binary, Missing) else one.binary,
                reason=self._reasons.get(one.pid, "another one came first"),
                cpu_seconds=difference(self._before[one.pid], _cpu_seconds(one)),
            )
            for one in self._masters
        ]


def _cpu_seconds(master: Master) -> float | None:
    return sum_known([read_cpu_seconds(pid) for pid in {master.pid, *master.workers}])


def with_pointer(observation: Observation) -> Observation:
    """Where too little was seen and another one was busy: to that one."""
    busier = busier_other(observation)
    causes = [
        replace(one, next_command=f"nginx-tune observe --pid {busier.pid}")
        if busier is not None and one.id == "not-enough-evidence"
        else one
        for one in observation.causes
    ]
    return replace(observation, causes=causes)
