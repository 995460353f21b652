from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import disk_classes_of, offloads
from nginx_tune.conf.directive import Directive
from nginx_tune.documents.decisions import Evidence

_FAST = {"ssd", "nvme"}

_NO_THREADS = (
    "Install an nginx built --with-threads, then add aio threads; here and compare: "
    "nginx-tune validate."
)
_OWN_AIO = "Set aio on; where these files are served: FreeBSD needs no thread pools for it."


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Directories far larger than the page cache that are read in the event loop."""
    reported: set[tuple[Directive, str]] = set()
    for cold in context.cold:
        if isinstance(cold, MissingFacts):
            yield cold
            continue
        served = cold.served
        if (served.place, served.path) in reported:
            continue
        reported.add((served.place, served.path))
        classes = disk_classes_of(served.path, context.facts)
        is_fast = bool(classes) and classes <= _FAST
        ratio = cold.evidence[-1].value
        message = (
            f"files under {served.path} are read in the event loop, and nginx serves {ratio} "
            "times as much data as the page cache can hold"
        )
        evidence = list(cold.evidence)
        if classes:
            kinds = ", ".join(sorted(classes))
            evidence.append(Evidence(fact=f"disk class under {served.path}", value=kinds))
        is_freebsd = context.facts.kernel.system == "FreeBSD"
        built = context.flags is None or "--with-threads" in context.flags
        yield Hit(
            served.place,
            message + (" (flash: stalls are rare, so measure first)" if is_fast else ""),
            evidence,
            fix=_OWN_AIO if is_freebsd else "" if built else _NO_THREADS,
            severity="advice" if is_fast else None,
        )
    yield from _cached_responses(context) if not reported else ()


def _cached_responses(context: Context) -> Iterator[Hit]:
    """Cached responses read in the event loop where the decisions recommend a pool."""
    lines = {
        served.place: served
        for served in context.served
        if served.via == "cache" and not offloads(served)
    }
    pools = context.decided.on("thread-pools") if lines else None
    if pools is not None and pools.verdict == "enable":
        for place, served in lines.items():
            message = (
                f"cached responses in {served.path} are read in the event loop. {pools.summary}"
            )
            yield Hit(place, message, pools.evidence)


_CONF = "events {} http { sendfile on; server { location / { root /srv/media; %s} } }"
_HOST = linux(datasets={"/srv/media": (256, 0.15)}, disks={"/srv/media": ("md0", "hdd")})

RULE = Rule(
    id="io-no-pool-cold-dataset",
    severity="warning",
    title="a dataset far larger than the page cache is read in the event loop",
    why="A read that misses the page cache blocks the worker and every other connection of that "
    "worker: requests for files in memory wait for the disk too. On flash such stalls are rare, "
    "and small files gain nothing.",
    fix="Set aio threads; where these files are served (with sendfile on and sendfile_max_chunk; "
    "on FreeBSD aio on;), and prove it before you deploy: nginx-tune validate NEW --against OLD.",
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#aio",
        "NGINX blog 2015: Thread Pools in NGINX Boost Performance 9x",
        "Cloudflare blog 2018: How we scaled nginx and saved the world 54 years every day",
    ),
    proof="proven",
    proven_on=("1.22",),
    since="1.7.11",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "aio threads; ", _HOST),
    check=check,
)
