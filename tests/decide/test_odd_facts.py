"""Facts and workloads of odd values: decisions, or one line why not."""

import json
from typing import Any

import pytest
from fuzzing import changed_tables, fuzzed
from hypothesis import given, settings
from hypothesis import strategies as st
from situations import (
    decide_without_break_evens,
    host,
    lab_host,
    lab_load,
    load,
    measured,
    site,
    source_host,
)
from tiers import draws

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.workload import Workload
from nginx_tune.errors import NginxTuneError

HOSTS = [lab_host(), measured(host(), 0.008, 150e6), source_host()]
LOADS = [lab_load(), load(), load("proxy", rate=4000), load("media", exponent=0.9)]


@pytest.mark.long
@fuzzed
@settings(max_examples=draws(15, 100))
@given(
    changed_tables([json.loads(encode(one)) for one in HOSTS]),
    changed_tables([json.loads(encode(one)) for one in LOADS]),
    st.integers(0, 2),
)
def test_odd_facts_give_decisions(facts: Any, workload: Any, which: int) -> None:
    """One of the two is odd, or both."""
    try:
        read_facts = decode(Facts, json.dumps(facts).encode()) if which != 1 else HOSTS[0]
        read_load = decode(Workload, json.dumps(workload).encode()) if which != 0 else LOADS[0]
        decisions = decide_without_break_evens(read_facts, read_load, site=site())
    except NginxTuneError:
        return
    encode(decisions)
