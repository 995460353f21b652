"""``nginx-tune learn --partial`` and ``nginx-tune merge`` on files."""

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rows import each_row
from synthetic_logs import FULL, Truth, lines_of
from test_learn_command import CONF

from nginx_tune.documents.learning import Partial
from nginx_tune.observe.access_logs import zstd
from nginx_tune.observe.log_partials import pack_partial, unpack_partial

pytestmark = pytest.mark.needs("probe")


@cache
def hosts() -> dict[str, list[str]]:
    """Two hosts' logs of the same hour, with connection numbers of their own."""
    return {
        name: [f"{line}\n" for line in lines_of(Truth(seed=seed, requests=1500))]
        for seed, name in enumerate(("edge1", "edge2"), 1)
    }


class Site:
    """A directory with a configuration, a key and what is learnt there."""

    def __init__(self, run_cli: Any, folder: Path) -> None:
        self.run_cli = run_cli
        self.folder = folder
        (folder / "nginx.conf").write_text(CONF)
        (folder / "key").write_text("a secret of enough bytes")

    def log(self, name: str, lines: list[str]) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        data = "".join(lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    def learn(self, *arguments: str | Path, key: str = "key") -> Any:
        return self.run_cli(
            "learn", *arguments, "-c", self.folder / "nginx.conf", "--log-format", "full",
            "--key-file", self.folder / key, "-f", "json",
        )  # fmt: skip

    def part(self, name: str, *arguments: str | Path, key: str = "key") -> Path:
        path = self.folder / f"{name}.partial"
        run = self.learn(*arguments, "--partial", path, key=key)
        assert run.returncode == 0, run.stderr
        return path


@pytest.fixture
def site(run_cli: Any, tmp_path: Path) -> Site:
    return Site(run_cli, tmp_path)


def test_merged_parts_are_the_whole_to_the_last_byte(site: Site, run_cli: Any) -> None:
    """By host and at random, merged parts merged again, with locations and manifest."""
    whole, manifest = site.folder / "whole.json", site.folder / "whole.jsonl"
    replayed = ("--manifest-requests", "500", "--manifest", site.folder / "any.jsonl")
    logs = [site.log(f"all/{name}/access.log", lines) for name, lines in hosts().items()]
    run = site.learn(*logs, *replayed, "--partial", site.folder / "all.partial", "-o", whole)
    assert run.returncode == 0, run.stderr
    (site.folder / "any.jsonl").rename(manifest)
    parts = []
    for name, lines in hosts().items():
        mixed = random.Random(name).sample(lines, len(lines))
        cut = len(lines) // 3
        for at, some in enumerate((mixed[:cut], mixed[cut:])):
            log = site.log(f"parts/{at}/{name}/access.log.gz", some)
            host = site.folder / "all" / name / "access.log"
            parts.append(site.part(f"{name}-{at}", log, "--log-host", str(host), *replayed))
    first, *others = parts
    inner, again = site.folder / "inner.partial", site.folder / "again.jsonl"
    assert run_cli("merge", *others[::-1], "--partial", inner).returncode == 0
    outer = site.folder / "outer.partial"
    run = run_cli("merge", inner, first, "--partial", outer, "--manifest", again, "-f", "json")
    assert run.returncode == 0, run.stderr
    assert run.stdout == whole.read_text()
    assert again.read_bytes() == manifest.read_bytes()
    one, two = (
        unpack_partial(path.read_bytes(), "") for path in (site.folder / "all.partial", outer)
    )
    assert bytes(one.tally) == bytes(two.tally)
    assert (one.plan, one.places) == (two.plan, two.places)
    found = json.loads(run.stdout)
    assert found["traffic"]["locations"]
    assert found["rate"]["mean_per_second"] > 1.5 * 80


def test_a_partial_result_tells_nothing_private(site: Site, tmp_path: Path) -> None:
    log = site.log("a-host-of-mine/access.log", hosts()["edge1"])
    plain = site.part("plain", log, "--manifest", tmp_path / "m")
    kept = site.part("kept", log, "--manifest", tmp_path / "m", "--keep-paths")
    for path in (plain, kept):
        text = zstd().decompress(path.read_bytes()).decode()
        assert path.stat().st_mode & 0o777 == 0o600
        for secret in ("192.0.2.", "secret", "a-host-of-mine", "token=", ".bin?"):
            assert secret not in text, secret
        assert ("/files/7.bin" in text) == (path == kept)
    assert unpack_partial(plain.read_bytes(), "").plan.key == ""


@each_row(
    "change, said",
    [
        ("the same log", "have a log in common"),
        ("the same log packed", "have a log in common"),
        ("another key", "hashes of different keys"),
        ("another kind", "were learnt with another kind"),
        ("another version", "written by nginx-tune 0.0.0"),
        ("cut off", "not a whole partial result"),
        ("another document", "expected a document of schema nginx-tune/partial/1"),
        ("a measurement", "not a whole partial result"),
        ("a broken tally", "not a tally: keys that do not ascend"),
    ],
)
def test_what_does_not_add_is_refused(site: Site, run_cli: Any, change: str, said: str) -> None:
    lines = hosts()
    first = site.part("first", site.log("access.log", lines["edge1"]))
    other = site.log("other.log", lines["edge2"])
    match change:
        case "the same log":
            second = site.part("second", site.log("copy/access.log", lines["edge1"]), other)
        case "the same log packed":
            second = site.part("second", site.log("copy.gz", lines["edge1"]))
        case "another key":
            (site.folder / "key2").write_text("another secret of enough bytes")
            second = site.part("second", other, key="key2")
        case "another kind":
            second = site.part("second", other, "--kind", "media")
        case _:
            second = site.part("second", other)
    data = second.read_bytes()
    partial = unpack_partial(data, "")
    match change:
        case "another version":
            data = pack_partial(msgspec.structs.replace(partial, version="0.0.0"))
        case "cut off":
            data = data[:-20]
        case "another document":
            data = zstd().compress(b'{"schema":"nginx-tune/facts/1"}')
        case "a measurement":
            data = b"{}"
        case "a broken tally":
            data = pack_partial(_with_equal_keys(partial))
    second.write_bytes(data)
    run = run_cli("merge", first, second)
    assert (run.returncode in {2, 4}, run.stdout) == (True, "")
    assert said in run.stderr
    assert run.stderr.count("\n") <= 2


def _with_equal_keys(partial: Partial) -> Partial:
    tally = msgspec.json.decode(partial.tally)
    tally["objects"]["gaps"][3] = 0
    return msgspec.structs.replace(partial, tally=msgspec.Raw(msgspec.json.encode(tally)))


def test_a_log_that_broke_off_stays_broken(site: Site, run_cli: Any) -> None:
    log = site.log("a.log.gz", hosts()["edge1"])
    log.write_bytes(log.read_bytes()[:-500])
    part = site.folder / "a.partial"
    assert site.learn(log, "--partial", part).returncode == 2
    run = run_cli("merge", part, "-f", "json")
    assert run.returncode == 2
    assert f"{part}: a log in it could not be read to the end" in run.stderr
    assert json.loads(run.stdout)["log"]["requests"] > 500


@each_row(
    "command, said",
    [
        (["learn", "LOG", "--partial", "out", "--log-format", FULL], "--partial needs --key-file"),
        (["learn", "LOG", "--key-file", "short", "--log-format", FULL], "too short for a secret"),
        (["learn", "LOG", "--key-file", "gone", "--log-format", FULL], "gone: cannot read"),
        (["merge", "PART", "--histogram", "text"], "--histogram is only for measurements"),
        (["merge", "PART", "--manifest", "m"], "hold no requests to replay"),
        (["merge", "short", "--partial", "out"], "--partial is only for partial results"),
    ],
)
def test_options_that_do_not_fit(site: Site, run_cli: Any, command: list[str], said: str) -> None:
    log = site.log("access.log", hosts()["edge1"][:50])
    (site.folder / "short").write_text("{}")
    names = {"LOG": log, "PART": site.part("part", log)} if "PART" in command else {"LOG": log}
    files = {name: site.folder / name for name in ("out", "short", "gone", "m")}
    run = run_cli(*(names.get(word, files.get(word, word)) for word in command))
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr
