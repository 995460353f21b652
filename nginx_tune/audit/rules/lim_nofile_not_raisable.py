"""``lim-nofile-not-raisable``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.values import parse_count
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """A worker_rlimit_nofile that the kernel refuses."""
    place = context.tree.main.first("worker_rlimit_nofile")
    wanted = None if place is None else parse_count(place.value)
    if place is None or wanted is None or context.is_linux is False:
        return
    limits = context.facts.limits
    asked = Evidence(fact="worker_rlimit_nofile", value=wanted, provenance="declared")
    if limits.nr_open is not None and wanted > limits.nr_open:
        yield Hit(
            place,
            f"no process may open {wanted} files: fs.nr_open is {limits.nr_open}",
            [asked, Evidence(fact="limits.nr_open", value=limits.nr_open)],
            fix=f"worker_rlimit_nofile {limits.nr_open}; or a higher fs.nr_open.",
        )
        return
    hard = limits.nofile_hard
    if hard is None:
        yield MissingFacts(("limits.nofile_hard",))
    elif wanted <= hard:
        return
    elif limits.can_raise is None:
        yield MissingFacts(("limits.can_raise",))
    elif not limits.can_raise:
        yield Hit(
            place,
            f"workers cannot raise the hard limit of {hard} open files to {wanted}",
            [
                asked,
                Evidence(fact="limits.nofile_hard", value=hard),
                Evidence(fact="limits.can_raise", value=False),
            ],
        )


_CONF = "worker_rlimit_nofile %s; events { worker_connections 8192; } http { }"

RULE = Rule(
    id="lim-nofile-not-raisable",
    severity="error",
    title="worker_rlimit_nofile is more than nginx may ask for",
    why="Above the hard limit setrlimit() needs CAP_SYS_RESOURCE, which containers and hardened "
    "units take away; above fs.nr_open nobody may. nginx logs an alert and goes on with the old "
    "limit.",
    fix="Raise the hard limit where nginx is started: LimitNOFILE= of the systemd unit, --ulimit "
    "nofile= of the container; or ask for no more than it is.",
    sources=(
        "nginx: src/os/unix/ngx_process_cycle.c, ngx_worker_process_init",
        "setrlimit(2), capabilities(7)",
        "github.com/nodejs/build issue 3259",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    bad=Example(_CONF % 1_000_000, linux(nofile=(1024, 65_536), can_raise=False)),
    good=Example(_CONF % 65_536, linux(nofile=(1024, 65_536), can_raise=False)),
    check=check,
)
