"""``nginx-tune learn --partials``, and logs by URL: an interrupted run goes on."""

import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_logs import FULL, Truth, lines_of
from test_learn_command import CONF

from nginx_tune.observe import kept_partials
from nginx_tune.observe.access_logs import zstd

pytestmark = pytest.mark.needs("probe")

NAMES = ("edge1.log.gz", "edge2.log.gz", "edge3.log", "quiet.log")


def contents(seed: int) -> bytes:
    return "".join(f"{line}\n" for line in lines_of(Truth(seed=seed, requests=800))).encode()


class Archive:
    """Logs of three hosts and an empty one in a directory, and how they are learnt."""

    def __init__(self, run_cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = run_cli
        self._folder = folder
        self.kept = folder / "kept"
        self.read: list[str] = []
        """Logs that were read since this was emptied."""
        (folder / "key").write_text("a secret of enough bytes")
        (folder / "nginx.conf").write_text(CONF)
        (folder / "logs").mkdir()
        for seed, name in enumerate(NAMES):
            data = contents(seed) if name != "quiet.log" else b""
            self.log(name).write_bytes(gzip.compress(data, mtime=0) if "gz" in name else data)
        keep = kept_partials.keep_partial

        def keep_partial(job: Any, log: Any, *rest: Any) -> Any:
            self.read.append(log.name.rpartition("/")[2])
            return keep(job, log, *rest)

        monkeypatch.setattr(kept_partials, "keep_partial", keep_partial)

    def log(self, name: str) -> Path:
        return self._folder / "logs" / name

    def learn(self, *arguments: str | Path) -> Any:
        logs = () if "--" in arguments else map(self.log, NAMES)
        return self._run(
            "learn", "-c", self._folder / "nginx.conf", "--log-format", "full", "-f", "json",
            "--key-file", self._folder / "key", "--manifest", self._folder / "manifest",
            *arguments, *logs,
        )  # fmt: skip

    def learn_kept(self, *arguments: str | Path) -> Any:
        return self.learn("--partials", self.kept, *arguments)


@pytest.fixture
def archive(run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    return Archive(run_cli, tmp_path, monkeypatch)


def test_the_sum_is_that_of_one_run_and_only_what_is_missing_is_read(archive: Archive) -> None:
    whole = archive.learn()
    assert whole.returncode == 0, whole.stderr
    assert archive.learn_kept().stdout == whole.stdout
    assert archive.read == [*NAMES]
    kept = sorted(archive.kept.iterdir())
    kept[0].unlink()
    archive.read.clear()
    assert archive.learn_kept().stdout == whole.stdout
    assert len(archive.read) == 1
    assert sorted(archive.kept.iterdir()) == kept
    edge1 = archive.log(NAMES[0])
    os.utime(edge1, ns=(1, 1))  # as if it were written anew
    archive.read.clear()
    assert archive.learn_kept().stdout == whole.stdout
    assert archive.read == [NAMES[0]]
    archive.read.clear()
    assert archive.learn_kept("--log-host", "x").returncode == 0
    assert archive.read == [*NAMES], "another host has other hashes"


def test_what_is_kept_tells_nobody_which_logs_and_clients_there_are(archive: Archive) -> None:
    assert archive.learn_kept().returncode == 0
    assert archive.kept.stat().st_mode & 0o777 == 0o700
    for path in archive.kept.iterdir():
        text = path.name + zstd().decompress(path.read_bytes()).decode()
        assert path.stat().st_mode & 0o777 == 0o600
        for secret in ("192.0.2.", "secret", "edge", "token=", ".bin", "/logs"):
            assert secret not in text.replace("files/[1-5]\\\\.bin", ""), secret


def test_a_log_that_is_cut_off_is_named_and_one_that_cannot_be_read_leaves_no_sum(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = archive.log("edge1.log.gz")
    cut.write_bytes(cut.read_bytes()[:-2000])
    whole = archive.learn()
    assert whole.returncode == 2
    for _ in range(2):  # read, and kept
        run = archive.learn_kept()
        assert (run.returncode, run.stdout) == (2, whole.stdout)
        assert f"{cut}: " in run.stderr
        assert "only the part before that was read" in run.stderr
    archive.learn_kept("--kind", "media")
    for path in archive.kept.iterdir():
        path.unlink()
    find = kept_partials.find_log
    changed = str(archive.log("edge2.log.gz"))
    monkeypatch.setattr(
        kept_partials, "find_log",
        lambda name: find(name)._replace(version="2") if name == changed else find(name),
    )  # fmt: skip
    run = archive.learn_kept()
    assert (run.returncode, run.stdout) == (4, "")
    assert f"{changed}: has changed" in run.stderr
    assert "1 of 4 logs could not be read" in run.stderr
    assert len(list(archive.kept.iterdir())) == 3


def test_logs_that_cannot_be_kept_or_count_twice_are_refused(archive: Archive) -> None:
    copy = archive.log("copy.gz")
    copy.write_bytes(archive.log("edge1.log.gz").read_bytes())
    for logs, said in (
        (["-"], "no time of change is known"),
        ([archive.log("gone")], "cannot read: No such file"),
        ([archive.log("quiet.log")], "1 log: empty"),
        ([archive.log("edge1.log.gz"), copy], "have a log in common"),
        ([archive.log("edge1.log.gz")] * 2, "given twice"),
    ):
        run = archive.learn_kept("--", *logs)
        assert (run.returncode, run.stdout) == (2, ""), said
        assert said in run.stderr
        assert run.stderr.count("\n") == 1


def test_urls_without_the_extra_are_one_line_with_its_command(
    run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    for command in ("learn", "merge"):
        run = run_cli(command, "s3://bucket/a.log")
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (4, "", 1)
        assert "pip install 'nginx-tune[s3]'" in run.stderr


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(address: str, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Any:
    import s3fs  # noqa: PLC0415

    for name, value in (
        ("ACCESS_KEY_ID", "nobody"), ("SECRET_ACCESS_KEY", "nothing"),
        ("DEFAULT_REGION", "us-east-1"), ("ENDPOINT_URL", address),
    ):  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    storage = s3fs.S3FileSystem(skip_instance_cache=True)
    if not storage.exists("logs"):
        storage.mkdir("logs")
    for name in NAMES:
        storage.pipe_file(f"logs/11/{name}", archive.log(name).read_bytes())
    return storage


@pytest.mark.needs("s3")
def test_objects_are_read_as_files_are_and_kept_beside_them(
    archive: Archive, bucket: Any, run_cli: Any
) -> None:
    urls = ("--", "s3://logs/11/*.log*")
    whole = archive.learn("--log-host", "edge")
    assert archive.learn("--log-host", "edge", *urls).stdout == whole.stdout
    kept = ("--log-host", "edge", "--partials", "s3://logs/kept", *urls)
    assert archive.learn(*kept).stdout == whole.stdout
    assert archive.read == [*NAMES]
    lost = bucket.ls("logs/kept", refresh=True, detail=False)[0]
    bucket.rm_file(lost)
    data = bucket.cat_file("logs/11/edge1.log.gz")[:-2000]
    bucket.pipe_file("logs/11/edge1.log.gz", data)
    archive.read.clear()
    run = archive.learn(*kept)
    assert run.returncode == 2
    assert len(archive.read) in {1, 2}
    assert archive.read[0] == "edge1.log.gz"
    assert "s3://logs/11/edge1.log.gz: Compressed file ended" in run.stderr
    run = run_cli("merge", "s3://logs/kept/*", "-f", "json")
    assert run.returncode == 2
    assert json.loads(run.stdout)["log"]["requests"] > 1600


@pytest.mark.needs("s3")
def test_what_cannot_be_had_is_one_line(bucket: Any, run_cli: Any) -> None:
    for url, status, said in (
        ("s3://logs/12/*", 2, "no object of this name"),
        ("s3://logs/11/gone", 2, "no object of this name"),
        ("s3://logs/11", 2, "a directory"),
        ("s5://logs/11/*", 4, "Protocol not known: s5"),
        ("http://127.0.0.1:1/edge1.log.gz", 4, "cannot read: "),
    ):
        run = run_cli("learn", url, "--log-format", FULL)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (status, "", 1), url
        assert said in run.stderr
        assert url in run.stderr
