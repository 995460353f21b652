"""``nginx-tune learn --engine dask``: the bytes of one run, whatever happens to the cluster."""

import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of

from nginx_tune.errors import UsageError
from nginx_tune.observe.kept_partials import refuse_plain
from nginx_tune.observe.log_partials import read_key

pytestmark = pytest.mark.needs("probe")

_SECONDS = 90


class Site:
    """Logs in a directory, and how they are learnt."""

    def __init__(self, folder: Path, logs: int) -> None:
        self.folder = folder
        self.kept = folder / "kept"
        self.key = folder / "key"
        self.key.write_text("a secret of enough bytes")
        (folder / "logs").mkdir()
        self.logs = [folder / "logs" / f"edge{number}.log.gz" for number in range(logs)]
        for seed, log in enumerate(self.logs):
            lines = lines_of(Truth(seed=seed, requests=300))
            log.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))

    def command(self, *arguments: str | Path) -> list[str]:
        shared = ("--log-format", FULL, "--key-file", self.key, "-f", "json")
        return ["learn", *map(str, (*self.logs, *shared, *arguments))]

    def on(self, engine: str, *arguments: str) -> list[str]:
        return self.command("--partials", self.kept, "--engine", engine, *arguments)


@pytest.mark.needs("dask")
def test_a_local_cluster_names_what_is_cut_off_and_adds_what_is_there(
    run_cli: Any, tmp_path: Path
) -> None:
    site = Site(tmp_path, 10)
    cut = site.logs[3]
    cut.write_bytes(cut.read_bytes()[:-500])
    whole = run_cli(*site.command())
    assert whole.returncode == 2
    run = run_cli(*site.on("dask"))
    assert (run.returncode, run.stdout) == (2, whole.stdout), run.stderr
    assert f"{cut}: Compressed file ended" in run.stderr
    for kept in list(site.kept.iterdir())[:4]:
        kept.unlink()
    assert run_cli(*site.on("dask")).stdout == whole.stdout


@each_row(
    "address, is_refused",
    [
        ("tcp://192.0.2.1:8786", True),
        ("192.0.2.1:8786", True),
        ("tcp://127.0.0.1.example.com:8786", True),
        ("ws://scheduler:8786", True),
        ("tls://scheduler:8786", False),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("localhost:8786", False),
    ],
)
def test_plain_connections_beyond_this_host(address: str, is_refused: bool) -> None:
    refused = pytest.raises(UsageError, match="are not encrypted")
    with refused if is_refused else contextlib.nullcontext():
        refuse_plain(address)


def test_calls_that_cannot_be(
    run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, 1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "nginx_tune.observe.dask_engine", raising=False)
    for command, status, said in (
        (site.command("--engine", "dask"), 2, "--engine needs --partials"),
        (site.on("spark"), 2, "--engine spark: give dask"),
        (site.on("dask="), 2, "give dask"),
        (site.on("dask=tcp://192.0.2.1:8786"), 2, "--allow-unencrypted"),
        (site.on("dask"), 4, "pip install 'nginx-tune[dask]'"),
    ):
        run = run_cli(*command)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (status, "", 1), run.stderr
        assert said in run.stderr


class Cluster:
    """A scheduler and workers, each a process of its own, on the loopback address."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._file = folder / f"scheduler{len(list(folder.glob('scheduler*')))}.json"
        self._options = options
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        protocol = ["--protocol", "tls"] if options else []
        self._start(
            "scheduler", "from distributed.cli.dask_scheduler import main; main()",
            "--host", "127.0.0.1", "--port", "0", "--no-show", "--no-dashboard",
            "--scheduler-file", str(self._file), *protocol,
        )  # fmt: skip
        wait_until(self._file.exists)
        wait_until(lambda: b'"address"' in self._file.read_bytes())
        self.address: str = json.loads(self._file.read_text())["address"]

    def add_worker(self, name: str, version: str = "") -> None:
        other = f"import nginx_tune; nginx_tune.__version__ = {version!r}; " if version else ""
        self._start(
            name, f"{other}from distributed.cli.dask_worker import main; main()",
            "--scheduler-file", str(self._file), "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--local-directory", str(self._file.parent / name),
        )  # fmt: skip

    def _start(self, name: str, code: str, *arguments: str) -> None:
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-c", code, *arguments, *self._options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=self._file.parent,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


@contextlib.contextmanager
def cluster_of(folder: Path, *options: str, workers: int = 2) -> Iterator[Cluster]:
    cluster = Cluster(folder, *options)
    try:
        for number in range(workers):
            cluster.add_worker(f"worker{number}")
        yield cluster
    finally:
        cluster.close()


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nginx_tune", *command], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.needs("dask")
def test_a_killed_worker_and_a_killed_scheduler_change_no_byte(
    run_cli: Any, tmp_path: Path
) -> None:
    site = Site(tmp_path, 40)
    whole = run_cli(*site.command()).stdout
    key = read_key(str(site.key))

    def kept() -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in site.kept.glob("*.partial")}

    with cluster_of(tmp_path, workers=1) as cluster:
        run = start(site.on(f"dask={cluster.address}"))
        wait_until(lambda: len(kept()) >= 3)
        cluster.kill("worker0")  # and nothing goes on
        dump = tmp_path / "dump.yaml"
        from distributed import Client  # noqa: PLC0415

        with Client(cluster.address) as client:
            client.dump_cluster_state(str(tmp_path / "dump"), format="yaml")
        cluster.kill("scheduler")
        out, errors = run.communicate(timeout=_SECONDS)
    assert (run.returncode, out) == (4, ""), errors
    assert "the scheduler was lost" in errors
    assert errors.count("\n") == 1
    text = dump.read_text()
    assert "learn-" in text, "the tasks are in it"
    assert key not in text
    assert "a secret of" not in text
    before = kept()
    assert 3 <= len(before) < len(site.logs)
    with cluster_of(tmp_path) as cluster:
        run = start(site.on(f"dask={cluster.address}"))
        wait_until(lambda: len(kept()) >= len(before) + 3)
        cluster.kill("worker1")
        out, errors = run.communicate(timeout=_SECONDS)
    assert (run.returncode, out) == (0, whole), errors
    after = kept()
    assert len(after) == len(site.logs)
    assert {name: after[name] for name in before} == before, "read again"


@pytest.mark.thorough
@pytest.mark.needs("dask")
def test_workers_of_another_version_are_refused_by_name(run_cli: Any, tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    with cluster_of(tmp_path, workers=0) as cluster:
        cluster.add_worker("other", version="0.0.1")
        run = run_cli(*site.on(f"dask={cluster.address}"))
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run.stderr
    assert "worker tcp://127.0.0.1:" in run.stderr
    assert "has nginx-tune 0.0.1" in run.stderr
    assert not list(site.kept.iterdir())


@pytest.mark.thorough
@pytest.mark.needs("dask", "openssl")
def test_a_cluster_behind_tls_serves_who_has_a_certificate(run_cli: Any, tmp_path: Path) -> None:
    site = Site(tmp_path, 3)
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cluster",
         "-days", "2", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    files = {"ca_file": certificate, "cert": certificate, "key": key}
    options = [f"--tls-{name.replace('_', '-')}={path}" for name, path in files.items()]
    secured = {
        f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path)
        for name, path in (
            ("CA_FILE", certificate), ("CLIENT__CERT", certificate), ("CLIENT__KEY", key),
        )
    }  # fmt: skip
    with cluster_of(tmp_path, *options, workers=1) as cluster:
        assert cluster.address.startswith("tls://")
        run = start(site.on(f"dask={cluster.address}"), **secured)
        out, errors = run.communicate(timeout=_SECONDS)
        assert (run.returncode, out) == (0, run_cli(*site.command()).stdout), errors
        for address in (cluster.address, cluster.address.replace("tls", "tcp")):
            run = start(site.on(f"dask={address}"))
            out, errors = run.communicate(timeout=_SECONDS)
            assert (run.returncode, out, errors.count("\n")) == (4, "", 1), errors
            assert "cannot reach the scheduler" in errors
