"""Words that contradict nothing beside them."""

import gzip
from pathlib import Path

import pytest
from command_line import RunCli
from msgspec.structs import replace

from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.verdict import Environment, MetricVerdict
from nginx_tune.measure.proof.comparison import _extremes
from nginx_tune.measure.proof.runs import Pair
from nginx_tune.report.scenario import scenario_screen
from nginx_tune.report.screen import plain_text
from nginx_tune.report.verdict import settles_text
from tests.proof.test_prove_reports import RUN


def test_as_many_pairs_as_were_run_do_not_settle_it() -> None:
    open_one = MetricVerdict(
        name="hot.p99", baseline=1.0, candidate=1.0, ratio=1.0, outcome="inconclusive", pairs=6,
        pairs_needed=6,
    )  # fmt: skip
    assert settles_text(open_one) == "a few more pairs may settle it"
    assert settles_text(replace(open_one, pairs_needed=7)) == "about 7 pairs would settle it"


def test_the_mix_is_that_of_all_pairs_not_of_the_first() -> None:
    def block(hot: int, cold: int) -> Measurement:
        classes = {"hot": ClassMeasurement(requests=hot), "cold": ClassMeasurement(requests=cold)}
        return Measurement(classes=classes)

    pairs = [Pair(0, block(100, 100), block(200, 100)), Pair(1, block(100, 100), block(100, 100))]
    (most, name), (least, other) = _extremes(pairs)
    assert (name, other) == ("hot", "cold")
    assert 2.718281828459045**most == pytest.approx(1.5)
    assert least == 0


def test_claims_of_an_interrupted_run_are_not_judged() -> None:
    stopped = replace(
        RUN,
        claims=[replace(one, measured=None, held=False) for one in RUN.claims],
        verdict=replace(RUN.verdict, stopped="interrupted", environment=Environment(pairs=0)),
    )
    text = plain_text(scenario_screen(stopped))
    assert "claims hold" not in text
    assert "NOT HELD" not in text
    assert "not judged" in text.splitlines()[0]


@pytest.mark.needs("probe")
def test_a_log_that_ends_within_its_first_line_is_said_to_be_cut(
    run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "access.log.gz"
    line = '10.0.0.1 - - [24/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 512 "-" "agent"'
    file.write_bytes(gzip.compress(line.encode(), 0)[:60])
    told = run_cli("learn", file)
    assert told.returncode == 2
    assert "log format" not in told.stderr
    assert "before the end of its first line" in told.stderr
