"""Logs read by a Kubernetes Job and by Spark: a valid manifest, its own command, the script.

No cluster runs here: the Job's command is run for each index, and Spark's session is a stand-in.
"""

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/many-logs"
JOB: Any = yaml.safe_load((EXAMPLE / "learn-job.yaml").read_text())
SPARK = """
class SparkSession:
    '''Runs each task where it is asked, one after the other.'''

    def __getattr__(self, name):
        return self if name in {"builder", "sparkContext"} else lambda *some: self

    def parallelize(self, items, parts):
        self.items = items
        return self

    def map(self, function):
        self.items = [function(item) for item in self.items]
        return self

    def collect(self):
        return self.items


SparkSession.builder = SparkSession()
"""

pytestmark = pytest.mark.thorough


@pytest.mark.needs("kubernetes-validate")
def test_the_manifest_is_strictly_valid() -> None:
    import kubernetes_validate  # noqa: PLC0415

    for version in ("1.29", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(JOB, version, strict=True)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Logs of three hosts on an S3 server; the programs that the examples call are on PATH."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    urlopen(f"{address}/moto-api/reset", data=b"").close()  # noqa: S310  # what another test has left
    for name, value in (
        ("ENDPOINT_URL", address), ("ACCESS_KEY_ID", "nobody"),
        ("SECRET_ACCESS_KEY", "nothing"), ("DEFAULT_REGION", "us-east-1"),
    ):  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    import s3fs  # noqa: PLC0415

    found = s3fs.S3FileSystem(skip_instance_cache=True)
    for bucket in ("logs", "results"):
        found.mkdir(bucket)
    for edge in range(3):
        for hour in range(2):
            head = f"192.0.2.{edge} - - [20/Nov/2026:1{hour}:26:34 +0000]"
            line = f'{head} "GET /{edge} HTTP/1.1" 200 9 "-" "-"\n'
            packed = gzip.compress(line.encode() * (edge + 1))
            found.pipe_file(f"logs/2026/11/20/edge{edge}/{hour}.gz", packed)
    (tmp_path / "learn.key").write_text("a secret of enough bytes")
    program = tmp_path / "nginx-tune"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nginx_tune "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield found
    server.stop()


def learn(*arguments: str) -> str:
    command = ["nginx-tune", "learn", "s3://logs/2026/11/*/edge*/*.gz", "--key-file", "learn.key"]
    run = subprocess.run(
        [*command, "-f", "json", *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.needs("s3", "probe")
def test_the_jobs_own_command_leaves_nothing_to_be_read(storage: Any) -> None:
    (container,) = JOB["spec"]["template"]["spec"]["containers"]
    for index in range(JOB["spec"]["completions"]):
        command = [
            word.replace("$(JOB_COMPLETION_INDEX)", str(index)).replace("/keys/", "")
            for word in (*container["command"], *container["args"])
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
    kept = storage.ls("results/nginx", refresh=True)
    assert len(kept) == 6
    assert learn("--partials", "s3://results/nginx") == learn()
    assert storage.ls("results/nginx", refresh=True) == kept


@pytest.mark.needs("s3", "probe")
def test_the_spark_script_keeps_and_adds(storage: Any, tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").touch()
    (tmp_path / "pyspark/sql.py").write_text(SPARK)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    run = subprocess.run(
        [sys.executable, EXAMPLE / "spark.py", "s3://logs/2026/11/*/edge*/*.gz",
         "s3://results/nginx", "learn.key"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, learn()), run.stderr
    assert len(storage.ls("results/nginx", refresh=True)) == 6
