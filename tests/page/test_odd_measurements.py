"""Measurements of odd values: added, compared and judged, or one line why not."""

import json
from typing import Any

import pytest
from fuzzing import changed_tables, fuzzed
from hypothesis import given, settings
from pages import RATE, blocks
from tiers import draws

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import NginxTuneError
from nginx_tune.measure.proof.compare import compare
from nginx_tune.measure.proof.merge import HostMeasurement, merge_measurements
from nginx_tune.measure.proof.verdict import judge

BLOCKS = blocks()


@pytest.mark.long
@fuzzed
@settings(max_examples=draws(40, 100))
@given(changed_tables([json.loads(encode(one)) for one in BLOCKS[:2]]))
def test_an_odd_measurement_is_judged_or_refused(tables: Any) -> None:
    try:
        odd = decode(Measurement, json.dumps(tables).encode())
    except NginxTuneError:
        return
    for use in (
        lambda: merge_measurements([HostMeasurement("a", odd), HostMeasurement("b", BLOCKS[2])]),
        lambda: compare(BLOCKS[0], odd),
        lambda: judge([odd, *BLOCKS[1:]], primary_metric=RATE, metrics=["hot.p99"]),
    ):
        try:
            encode(use())
        except NginxTuneError:
            continue
