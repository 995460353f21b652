"""A fleet on one machine: each host has namespaces, a link, an sshd and an nginx of its own."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

SUBNET = "10.77.0"
CONTROLLER = 2
FIRST_HOST = 11

SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp
"""
START = """
set -e
mount --make-rprivate /
hostname {name}
# ip netns exec has mounted sysfs anew, without the cgroups that bound what is started for a proof.
mount -t tmpfs tmpfs /sys/fs/cgroup
for controller in pids memory; do
  mkdir /sys/fs/cgroup/$controller
  mount -t cgroup -o $controller $controller /sys/fs/cgroup/$controller 2>/dev/null ||
    rmdir /sys/fs/cgroup/$controller
done
[ -d /sys/fs/cgroup/pids ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir /run/sshd
for place in etc/nginx var/log/nginx var/lib/nginx; do
  mount --bind "{folder}/$place" "/$place"
done
mkdir -p /opt
mount --bind {shared} /opt
nginx
exec /usr/sbin/sshd -D -e -f {sshd}
"""
NGINX_CONF = """
user root;
worker_processes 1;
error_log /var/log/nginx/error.log;
pid /run/nginx.pid;
events { worker_connections 512; }
http {
    access_log off;
    server {
        listen 80;
        location / { root /etc/nginx/html; }
        location = /version { return 200 "first"; }
    }
}
"""


class Host:
    """One host of the fleet."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.name = name
        self.address = f"{SUBNET}.{FIRST_HOST + number}"
        self.folder = folder / name
        for place in ("etc/nginx/html", "var/log/nginx", "var/lib/nginx"):
            (self.folder / place).mkdir(parents=True)
        self.conf = self.folder / "etc/nginx/nginx.conf"
        self.conf.write_text(NGINX_CONF)
        (self.folder / "etc/nginx/html/index.html").write_text("hello\n" * 200)


class Fleet:
    """Hosts, the namespace that Ansible runs in, and the files of both."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.tag = f"nt{os.getpid()}"
        self.hosts = [Host(f"web{number + 1}", number, folder) for number in range(count)]
        self.shared = folder / "opt"
        self.shared.mkdir()
        self.inventory = folder / "inventory.yml"
        self._processes: list[subprocess.Popen[bytes]] = []

    def namespace(self, name: str) -> str:
        return f"{self.tag}-{name}"

    def start(self) -> None:
        for key in ("key", "host_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        (self.folder / "sshd_config").write_text(SSHD.format(folder=self.folder))
        switch = self.namespace("switch")
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        self._connect("controller", f"{SUBNET}.{CONTROLLER}")
        for host in self.hosts:
            self._connect(host.name, host.address)
            script = START.format(
                name=host.name,
                folder=host.folder,
                shared=self.shared,
                sshd=self.folder / "sshd_config",
            )
            log = (host.folder / "log").open("wb")
            inside = ["unshare", "-m", "-u", "-p", "--fork", "--kill-child", "--mount-proc"]
            space = self.namespace(host.name)
            command = ["ip", "netns", "exec", space, *inside, "sh", "-c", script]
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            )
            log.close()
        self._write_inventory()
        for host in self.hosts:
            self._await(host)

    def _connect(self, name: str, address: str) -> None:
        """A namespace whose eth0 leads to the switch."""
        switch, space = self.namespace("switch"), self.namespace(name)
        _run("ip", "netns", "add", space)
        _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", name,
             "netns", switch)  # fmt: skip
        _run("ip", "-n", switch, "link", "set", name, "master", "br0", "up")
        _run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")

    def _write_inventory(self) -> None:
        known = self.folder / "known_hosts"
        public = (self.folder / "host_key.pub").read_text().rsplit(" ", 1)[0]
        known.write_text("".join(f"{host.address} {public}\n" for host in self.hosts))
        args = f"-o UserKnownHostsFile={known} -o IdentitiesOnly=yes"
        listed = "".join(
            f"        {host.name}: {{ansible_host: {host.address}}}\n" for host in self.hosts
        )
        loading = "".join(
            f"        {host.name}: {{ansible_host: {host.address}}}\n" for host in self.hosts[:3]
        )
        self.inventory.write_text(
            "all:\n  vars:\n    ansible_user: root\n"
            f"    ansible_ssh_private_key_file: {self.folder}/key\n"
            f"    ansible_ssh_common_args: {args}\n"
            f"    ansible_python_interpreter: {sys.executable}\n"
            "    reload_command: [nginx, -s, reload]\n"
            f"  children:\n    nginx:\n      hosts:\n{listed}"
            f"    load_hosts:\n      hosts:\n{loading}"
        )

    def _await(self, host: Host) -> None:
        for _ in range(200):
            if self.run("ssh", "-i", str(self.folder / "key"), "-o", "BatchMode=yes", "-o",
                        f"UserKnownHostsFile={self.folder}/known_hosts", f"root@{host.address}",
                        "true").returncode == 0:  # fmt: skip
                return
            time.sleep(0.1)
        raise AssertionError((host.folder / "log").read_text())

    def run(
        self, *command: str, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """A command on the controller."""
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace("controller"), *command],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={**os.environ, **env},
        )

    def stop(self) -> None:
        for process in self._processes:
            process.kill()  # its namespaces end with it, and all that runs in them
            process.wait()
        listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            name = line.split(maxsplit=1)[0]
            if name.startswith(f"{self.tag}-"):
                subprocess.run(["ip", "netns", "delete", name], check=False)


@contextlib.contextmanager
def fleet_of(folder: Path, count: int) -> Iterator[Fleet]:
    """A running fleet."""
    fleet = Fleet(folder, count)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def load_plan(address: str) -> dict[str, Any]:
    """Three seconds of 300 requests a second, as a whole load plan."""
    return {
        "schema": "nginx-tune/loadplan/1",
        "target": {"address": address, "port": 80, "host": address},
        "duration_seconds": 3,
        "warmup_seconds": 1,
        "classes": [
            {
                "name": "all",
                "arrivals": {"kind": "poisson", "rate_per_second": 300},
                "paths": {"kind": "fixed", "paths": ["/index.html"]},
                "connections": 64,
            }
        ],
    }


def adds_up(parts: list[Any], merged: Any) -> None:
    """Hold the sum to one recorder of the public library that is fed with every part's samples."""
    assert len(parts) == 3
    whole = merged["classes"]["all"]
    latencies = [one["classes"]["all"]["response_seconds"] for one in parts]
    assert whole["requests"] == sum(one["classes"]["all"]["requests"] for one in parts)
    assert 600 < whole["requests"] < 1200, "each host had a third of 300 a second"
    recorder = HdrHistogram.decode(latencies[0]["histogram"])
    for one in latencies[1:]:
        recorder.add(HdrHistogram.decode(one["histogram"]))
    found = HdrHistogram.decode(whole["response_seconds"]["histogram"])
    assert _recorded(found) == _recorded(recorder)
    assert 0 <= merged["start_skew_seconds"] < 5
    for name, quantile in (("p50", 50), ("p90", 90)):
        nanoseconds = recorder.get_value_at_percentile(quantile)
        assert whole["response_seconds"][name] == pytest.approx(nanoseconds / 1e9, rel=0.002)


def _recorded(histogram: HdrHistogram) -> dict[int, int]:
    return {
        item.value_iterated_to: item.count_at_value_iterated_to
        for item in histogram.get_recorded_iterator()
    }
