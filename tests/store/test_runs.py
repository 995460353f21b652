"""Stored runs: whole or not at all, bounded, found by the first digits, never trusted."""

import gzip
import json
import os
import random
import threading
from pathlib import Path

import pytest
from command_line import RunCli
from msgspec.structs import replace
from twins import twin

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.run import KeptRun, KeptRuns, RunComparison, Validation
from nginx_tune.documents.scenario import VariantText
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.experiment import store as kept
from nginx_tune.experiment.store import Clock, list_runs, read_run, store_run
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.measure.proof.verdict import alpha_of, judge, rejudge

RATE = "hot.requests_per_second"


def validation(candidate: float, *, host: float = 1.0, baseline: str = "aio off;") -> Validation:
    """Eight pairs of a baseline that makes 100 requests a second and a candidate."""
    blocks = []
    for pair in range(8):
        jitter = host * (1 + 0.01 * (pair % 3))
        for half, (variant, rate) in enumerate((("baseline", 100.0), ("candidate", candidate))):
            part = ClassMeasurement(requests_per_second=rate * jitter * (1 + 0.002 * pair * half))
            blocks.append(
                Measurement(variant=variant, number=2 * pair + half, classes={"hot": part})
            )
    return Validation(
        verdict=judge(blocks, primary_metric=RATE, metrics=[]),
        variants=[VariantText(variant="baseline", nginx_conf=baseline)],
        measurements=blocks,
    )


def store(result: Validation, directory: Path | None = None, name: str = "a.conf") -> str:
    return store_run(result, kind="validate", name=name, clock=Clock(), directory=directory).id


def test_what_is_stored_is_read_back_whole(tmp_path: Path) -> None:
    result = validation(120.0)
    run_id = store(result, tmp_path)
    assert read_run(run_id, tmp_path).result == result
    assert read_run(run_id[:5], tmp_path).result == result
    assert read_run("last", tmp_path).summary.ratio == pytest.approx(1.2, rel=0.05)
    listed = list_runs(tmp_path)
    assert [one.id for one in listed.runs] == [run_id]
    assert listed.skipped == []
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


def test_the_same_result_has_the_same_id(tmp_path: Path) -> None:
    assert store(validation(120.0), tmp_path) == store(validation(120.0), tmp_path)
    assert store(validation(121.0), tmp_path) != store(validation(120.0), tmp_path)


def test_files_that_are_no_runs_are_skipped_with_a_word(tmp_path: Path) -> None:
    run_id = store(validation(120.0), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    for what, (name, contents) in {
        "empty": ("0123456789", b""),
        "no gzip": ("0123456789", b"no gzip"),
        "no JSON": ("0123456789", gzip.compress(b"not json\n{}\n")),
        "another document": (
            "0123456789", gzip.compress(b'{"schema":"nginx-tune/facts/1"}\n{}\n')
        ),
        "cut off": ("0123456789", gzip.compress(random.Random(1).randbytes(5000))[:2000]),
        "no number": ("\x1b[31m", b"\xff"),
    }.items():  # fmt: skip
        file = tmp_path / f"{name}.run.gz"
        file.write_bytes(contents)
        listed = list_runs(tmp_path)
        assert [one.id for one in listed.runs] == [run_id], what
        assert [bool(one.reason) for one in listed.skipped] == [True], what
        if name.isdigit():
            with pytest.raises(UsageError):
                read_run(name, tmp_path)
        file.unlink()


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0123456789.run.gz")
    assert len(list_runs(tmp_path).skipped) == 1
    with pytest.raises(UsageError):
        read_run("0123456789", tmp_path)


def test_a_run_that_was_changed_or_renamed_is_found_out(tmp_path: Path) -> None:
    run_id = store(validation(120.0), tmp_path)
    path = tmp_path / f"{run_id}.run.gz"
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text.replace(b"aio off", b"aio  on")))
    with pytest.raises(UsageError, match="changed since"):
        read_run(run_id, tmp_path)
    path.rename(tmp_path / "0123456789.run.gz")
    assert "holds the run" in list_runs(tmp_path).skipped[0].reason


def test_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_RUNS", 3)
    stored = []
    for number in range(5):
        stored.append(store(validation(120.0 + number), tmp_path))
        os.utime(tmp_path / f"{stored[-1]}.run.gz", (1000 + number, 1000 + number))
    store(validation(200.0), tmp_path)
    left = {one.id for one in list_runs(tmp_path).runs}
    assert left == {*stored[3:], *left - set(stored)}
    assert len(left) == 3
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    last = store(validation(300.0), tmp_path)
    assert [one.id for one in list_runs(tmp_path).runs] == [last]


def test_what_a_dead_process_left_half_written_goes(tmp_path: Path) -> None:
    half = tmp_path / ".0123456789.run.gz.1.new"
    half.write_bytes(b"x")
    store(validation(120.0), tmp_path)
    assert half.exists()  # it may still be being written
    os.utime(half, (1000, 1000))
    store(validation(121.0), tmp_path)
    assert not half.exists()


def test_many_at_once(tmp_path: Path) -> None:
    threads = [
        threading.Thread(target=store, args=(validation(100.0 + n), tmp_path)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = list_runs(tmp_path)
    assert (len(listed.runs), listed.skipped) == (8, [])


def test_where_nothing_can_be_written_it_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UndecidedError, match="not kept"):
        store(validation(120.0), tmp_path / "file" / "runs")


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def test_list_and_show_through_the_command_line(
    run_cli: RunCli, state: dict[str, str], tmp_path: Path
) -> None:
    empty = run_cli("runs", "list", env=state)
    assert empty.returncode == 0
    assert "no runs are kept" in empty.stdout
    run_id = store(validation(120.0), tmp_path / "nginx-tune" / "runs", name="x\x1b[31m.conf")
    listed = run_cli("runs", "list", env=state)
    assert run_id in listed.stdout
    assert "\x1b" not in listed.stdout
    document = decode(KeptRuns, run_cli("runs", "list", "-f", "json", env=state).stdout.encode())
    assert document.runs[0].id == run_id
    shown = run_cli("runs", "show", run_id[:4], env=state)
    assert "better" in "".join(shown.stdout.splitlines()[1:4])
    file = tmp_path / "run.json"
    whole = run_cli("runs", "show", "last", "-f", f"json={file}", env=state)
    assert whole.returncode == 0
    assert decode(KeptRun, file.read_bytes()).result == validation(120.0)
    assert run_cli("runs", "show", file, env=state).stdout == shown.stdout


@pytest.mark.parametrize(("user", "said"), [(1000, "with sudo"), (0, "keep theirs")])
def test_without_a_run_it_is_said_where_others_are(
    user: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sudo validate stores for root: the same person without sudo has none."""
    monkeypatch.setattr("os.geteuid", lambda: user)
    with pytest.raises(UsageError, match="no runs are kept") as raised:
        read_run("last", tmp_path)
    assert said in raised.value.hint


def test_a_latency_of_each_variant_by_powers_of_two(
    run_cli: RunCli, state: dict[str, str], tmp_path: Path
) -> None:
    """Blocks of a variant are added; those that the verdict discards are left out."""
    seconds = {"baseline": 3_000_000, "candidate": 1_500_000}
    whole = validation(120.0)
    blocks = [
        replace(
            block,
            classes={
                "hot": ClassMeasurement(response_seconds=latency_of({seconds[block.variant]: 9}))
            },
            flags=["generator: too slow"] if block.number == 3 else [],
        )
        for block in whole.measurements
    ]
    store(replace(whole, measurements=blocks), tmp_path / "nginx-tune" / "runs")
    spoilt = blocks[3].variant
    other = next(name for name in seconds if name != spoilt)
    shown = run_cli("runs", "show", "last", "--histogram", "all", env=state).stdout
    assert "better" in shown
    assert f"hot, {spoilt}, 7 runs (1 more discarded and left out)" in shown
    assert f"hot, {other}, 8 runs\n" in shown
    assert [line.split()[-1] for line in shown.splitlines() if "|█" in line] == ["72", "63"]


def test_judged_again_by_other_gates(
    run_cli: RunCli, state: dict[str, str], tmp_path: Path
) -> None:
    store(validation(120.0), tmp_path / "nginx-tune" / "runs")
    gate = f"ratio({RATE}) >= "
    assert run_cli("runs", "show", "last", "--require", gate + "1.1", env=state).returncode == 0
    failed = run_cli("runs", "show", "last", "--require", gate + "1.5", env=state)
    assert failed.returncode == 1
    assert "FAIL" in failed.stdout
    assert run_cli("runs", "show", "last", "--require", "gone.p99<1", env=state).returncode == 2


def test_judged_again_it_claims_no_more_than_its_last_look_may() -> None:
    stored = validation(120.0)
    verdict = replace(stored.verdict, looks=2, stopped="settled")
    again = rejudge(replace(stored, verdict=verdict), primary_metric=RATE)
    assert (again.verdict.looks, again.verdict.stopped) == (2, "settled")
    once, second = stored.verdict.metrics[0].level, again.verdict.metrics[0].level
    assert once is not None
    assert second is not None
    assert second >= 1 - alpha_of(2) > once


def test_no_such_run_is_one_line(run_cli: RunCli, state: dict[str, str]) -> None:
    for name in ("nosuchrun", "abc", "0123456789", "missing.json", ""):
        run = run_cli("runs", "show", name, env=state)
        assert run.returncode == 2, name
        assert len(run.stderr.splitlines()) == 1, name


def compare(
    run_cli: RunCli, tmp_path: Path, a: Validation, b: Validation
) -> tuple[int, RunComparison]:
    place = tmp_path / "nginx-tune" / "runs"
    state = {"XDG_STATE_HOME": str(tmp_path)}
    run = run_cli("compare", store(a, place), store(b, place), "-f", "json", env=state)
    return run.returncode, decode(RunComparison, run.stdout.encode())


def test_a_common_baseline_takes_the_host_out(run_cli: RunCli, tmp_path: Path) -> None:
    status, found = compare(run_cli, tmp_path, validation(120.0), validation(150.0, host=0.5))
    assert status == 0
    assert found.same_baseline
    assert found.outcome == "better"
    assert found.metrics[0].ratio == pytest.approx(1.25, rel=0.02)
    assert found.metrics[0].baseline_ratio == pytest.approx(0.5, rel=0.02)
    status, found = compare(run_cli, tmp_path, validation(150.0), validation(120.0, host=2.0))
    assert (status, found.outcome) == (1, "worse")


def test_without_a_common_baseline_nothing_is_claimed(run_cli: RunCli, tmp_path: Path) -> None:
    other = validation(150.0, baseline="aio threads;")
    status, found = compare(run_cli, tmp_path, validation(120.0), other)
    assert (status, found.outcome) == (4, "inconclusive")
    assert any("baselines differ" in warning for warning in found.warnings)
    assert found.metrics[0].ratio == pytest.approx(1.25, rel=0.02)


def test_runs_are_compared_by_id_last_and_file(
    run_cli: RunCli, state: dict[str, str], tmp_path: Path
) -> None:
    place = tmp_path / "nginx-tune" / "runs"
    first = store(validation(120.0), place)
    shown = tmp_path / "first.json"
    run_cli("runs", "show", first, "-f", f"json={shown}", env=state)
    assert store(validation(150.0), place) != first
    (later,) = {one.id for one in list_runs(place).runs} - {first}
    said = run_cli("compare", first[:5], later, env=state)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("Better: ")
    packed = place / f"{first}.run.gz"
    for name in (shown, packed):
        assert run_cli("compare", name, later, env=state).stdout == said.stdout
    assert run_cli("compare", "last", "last", env=state).returncode == 0


def test_documents_of_two_kinds_are_refused(
    run_cli: RunCli, state: dict[str, str], tmp_path: Path
) -> None:
    run_id = store(validation(120.0), tmp_path / "nginx-tune" / "runs")
    seen, load, other = (tmp_path / f"{name}.json" for name in ("seen", "load", "other"))
    seen.write_bytes(encode(Observation()))
    load.write_bytes(encode(validation(120.0).measurements[0]))
    other.write_bytes(encode(KeptRuns()))
    two = "documents of two kinds cannot be compared"
    for arguments, what in (
        ((run_id, seen), f"{run_id} is a stored run and {seen} is an observation: {two}"),
        ((load, run_id), f"{load} is a measurement and {run_id} is a stored run: {two}"),
        ((seen, seen, "--control", seen, load), f"{load} is a measurement: {two}"),
        ((run_id, run_id, "--control", run_id, run_id), "--control is only for observations"),
        ((run_id, other), f"{other}: nginx-tune's runs document, which cannot be compared"),
    ):
        said = run_cli("compare", *arguments, env=state)
        assert (said.returncode, said.stdout) == (2, "")
        assert what in said.stderr
        assert len(said.stderr.splitlines()) == 1


@pytest.mark.needs("root", "nginx", "probe")
def test_validate_stores_what_it_measured(run_cli: RunCli, tmp_path: Path) -> None:
    root = tmp_path / "www"
    root.mkdir()
    for index in range(3):
        (root / f"f{index}").write_bytes(bytes(20_000))
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "user root; events {} http { server { listen 18082;"
        f" proxy_set_header Authorization secret1; root {root}; }} }} # my comment"
    )
    short = ("--pairs", "1", "--duration", "300ms", "--warmup", "100ms", "--accept-inconclusive")
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = ("validate", conf, "--against", twin(conf), *short)
    run = run_cli(*command, "--no-store", env=state)
    assert "stored" not in run.stderr
    assert not (tmp_path / "state").exists()
    run = run_cli(*command, env=state)
    assert "stored as run" in run.stderr
    shown = run_cli("runs", "show", "last", "-f", "json", env=state)
    result = json.loads(shown.stdout)["result"]
    blocks = result["measurements"]
    assert {block["arm"] for block in blocks} == {"baseline", "candidate"}
    assert all(block["classes"]["hot"]["response_seconds"]["histogram"] for block in blocks)
    assert "listen 18082" in result["arms"][1]["nginx_conf"]
    assert "secret1" not in shown.stdout
