from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.values import parse_count
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``worker_rlimit_nofile`` above what the kernel allows."""
    place = context.tree.main.first("worker_rlimit_nofile")
    wanted = None if place is None else parse_count(place.value)
    if place is None or wanted is None or context.is_linux is False:
        return
    limits = context.facts.limits
    configured = Evidence(fact="worker_rlimit_nofile", value=wanted, provenance="declared")
    if limits.nr_open is not None and wanted > limits.nr_open:
        yield Hit(
            place,
            f"no process may open {wanted} files: fs.nr_open is {limits.nr_open}",
            [configured, Evidence(fact="limits.nr_open", value=limits.nr_open)],
            fix=f"Set worker_rlimit_nofile to {limits.nr_open} at most, or raise fs.nr_open.",
        )
        return
    hard = limits.nofile_hard
    if hard is not None and wanted <= hard:
        return
    if hard is None or limits.nofile_of == "reader":  # the shell's limit
        yield MissingFacts(("limits.nofile_hard",))
    elif limits.can_raise is None:
        yield MissingFacts(("limits.can_raise",))
    elif not limits.can_raise:
        yield Hit(
            place,
            f"workers cannot raise the hard limit of {hard} open files to {wanted}",
            [
                configured,
                Evidence(fact="limits.nofile_hard", value=hard),
                Evidence(fact="limits.can_raise", value=False),
            ],
        )


_CONF = "worker_rlimit_nofile %s; events { worker_connections 8192; } http { }"

RULE = Rule(
    id="lim-nofile-not-raisable",
    severity="error",
    title="worker_rlimit_nofile is above what nginx may set",
    why="Above the hard limit setrlimit() needs CAP_SYS_RESOURCE, which containers and hardened "
    "units drop; nobody may exceed fs.nr_open. nginx logs an alert and keeps the old limit.",
    fix="Raise the hard limit where nginx is started (LimitNOFILE= in the systemd unit, --ulimit "
    "nofile= for the container), or set no more than it.",
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
