"""Every rule, in the order of the catalogue. A test holds it against the folder."""

from __future__ import annotations

from nginx_tune.audit.rule import Rule
from nginx_tune.audit.rules import (
    cf_directive_arguments,
    cf_directive_misplaced,
    cf_directive_unknown,
    cf_directive_version,
    io_chunk_unlimited,
    io_no_pool_cold_dataset,
    io_pool_cached_dataset,
    io_pool_literal_unknown,
    io_pool_overflow_seen,
    io_pool_single_many_disks,
    io_pool_var_unresolved,
    io_threads_not_built,
    ls_reuseport_blocking,
    ls_reuseport_candidate,
)

ALL: tuple[Rule, ...] = (
    cf_directive_unknown.RULE,
    cf_directive_misplaced.RULE,
    cf_directive_arguments.RULE,
    cf_directive_version.RULE,
    io_pool_var_unresolved.RULE,
    io_pool_literal_unknown.RULE,
    io_threads_not_built.RULE,
    io_pool_overflow_seen.RULE,
    io_pool_single_many_disks.RULE,
    io_pool_cached_dataset.RULE,
    io_no_pool_cold_dataset.RULE,
    io_chunk_unlimited.RULE,
    ls_reuseport_blocking.RULE,
    ls_reuseport_candidate.RULE,
)
