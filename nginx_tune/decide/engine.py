"""All decisions for one host, workload and site."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from nginx_tune.decide.accept import decide_accept
from nginx_tune.decide.access_log import decide_access_log
from nginx_tune.decide.aio_write import decide_aio_write
from nginx_tune.decide.backlog import decide_backlog
from nginx_tune.decide.cache_key import decide_cache_key
from nginx_tune.decide.cache_layout import decide_cache_layout
from nginx_tune.decide.cache_misses import decide_cache_misses
from nginx_tune.decide.cache_updates import decide_cache_updates
from nginx_tune.decide.connections import decide_connections
from nginx_tune.decide.directio import decide_directio
from nginx_tune.decide.file_limits import decide_file_limits
from nginx_tune.decide.http2 import decide_http2
from nginx_tune.decide.http3 import decide_http3
from nginx_tune.decide.ktls import decide_ktls
from nginx_tune.decide.law import elsewhere, keep_law, unsure_of_kind
from nginx_tune.decide.observed import with_observation
from nginx_tune.decide.open_file_cache import decide_open_file_cache
from nginx_tune.decide.output_buffers import decide_output_buffers
from nginx_tune.decide.per_disk_pools import decide_per_disk_pools
from nginx_tune.decide.plausible import plausible_facts, plausible_workload
from nginx_tune.decide.pool_plan import PoolPlan, plan_pools
from nginx_tune.decide.read_ahead import decide_read_ahead
from nginx_tune.decide.reuseport import decide_reuseport
from nginx_tune.decide.sendfile import decide_sendfile
from nginx_tune.decide.sendfile_max_chunk import decide_sendfile_max_chunk
from nginx_tune.decide.sensitivity import with_break_evens
from nginx_tune.decide.site_defaults import complete_site
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.slice import decide_slice
from nginx_tune.decide.staying import ALL_AS_DECIDED, Staying
from nginx_tune.decide.streaming import decide_streaming
from nginx_tune.decide.thread_pool_size import decide_thread_pool_size
from nginx_tune.decide.thread_pools import decide_thread_pools
from nginx_tune.decide.upstream_keepalive import decide_upstream_keepalive
from nginx_tune.decide.workers import decide_workers
from nginx_tune.decide.workload.cached_scans import scans_of_caches
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.decisions import Decision, Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Workload

Decide = Callable[[Situation, PoolPlan], Decision]

ALL: tuple[Decide, ...] = (
    decide_thread_pools,
    decide_thread_pool_size,
    decide_per_disk_pools,
    decide_aio_write,
    decide_cache_layout,
    decide_cache_key,
    decide_cache_misses,
    decide_cache_updates,
    decide_slice,
    decide_sendfile,
    decide_sendfile_max_chunk,
    decide_output_buffers,
    decide_directio,
    decide_open_file_cache,
    decide_workers,
    decide_connections,
    decide_file_limits,
    decide_accept,
    decide_reuseport,
    decide_backlog,
    decide_upstream_keepalive,
    decide_access_log,
    decide_read_ahead,
    decide_ktls,
    decide_http2,
    decide_http3,
    decide_streaming,
)


def decide(
    facts: Facts,
    workload: Workload,
    *,
    site: Site,
    observation: Observation | None = None,
    stays: Staying = ALL_AS_DECIDED,
) -> Decisions:
    """Every decision, in the order in which an operator would read them.

    What an observation of the running server shows takes the place of what is assumed; ``stays`` is
    what of a configuration is left as it is, for which the numbers are made.

    The same inputs give the same decisions anywhere.
    """
    situation = situation_of(facts, workload, site=site, observation=observation, stays=stays)
    plan = plan_pools(situation)
    others = elsewhere(situation)
    answers = [(one, one(situation, plan)) for one in ALL]
    is_assumed = situation.workload.kind_provenance == "assumed"
    return Decisions(
        kind=situation.kind,
        kind_provenance=situation.workload.kind_provenance,
        nginx_choice=situation.facts.nginx.choice,
        decisions=[
            unsure_of_kind(law, assumed=is_assumed)
            for one, answer in answers
            for law in (keep_law(one, with_break_evens(one, answer, situation, plan), others),)
        ],
        unknown=situation.facts.unknown,
    )


def situation_of(
    facts: Facts,
    workload: Workload,
    *,
    site: Site,
    observation: Observation | None = None,
    stays: Staying = ALL_AS_DECIDED,
) -> Situation:
    """What is decided on.

    Gaps of the workload and the site are filled as ``workload_for`` and ``complete_site`` do;
    impossible numbers count as unknown.
    """
    facts = plausible_facts(facts)
    site = complete_site(site, facts, workload.kind)
    if workload.kind == "cache":  # sizes, directories and pages of other files say nothing of it
        facts = replace(facts, datasets=scans_of_caches(facts.datasets, site))
    workload = workload_for(None, facts, plausible_workload(workload))
    workload = plausible_workload(with_observation(workload, observation))
    return Situation(facts, workload, site, observation, stays=stays)
