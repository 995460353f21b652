"""Decisions made once for all tests that share their inputs, without the costly break-evens."""

from situations import decide_without_break_evens

from nginx_tune.decide.answer import ALL_AS_DECIDED, Pinned
from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Workload

_made: dict[tuple[bytes, bytes, bytes, Pinned], Decisions] = {}


def decide(
    facts: Facts, workload: Workload, *, site: Site, stays: Pinned = ALL_AS_DECIDED
) -> Decisions:
    """The same inputs give the same decisions, and nobody can change them."""
    key = encode(facts), encode(workload), encode(site), stays
    if key not in _made:
        _made[key] = decide_without_break_evens(facts, workload, site=site, stays=stays)
    return _made[key]
