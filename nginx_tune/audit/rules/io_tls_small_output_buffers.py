from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import covering, offloads
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import tls_servers
from nginx_tune.conf.values import parse_bytes
from nginx_tune.documents.decisions import Evidence

SMALL_BYTES = 32 << 10
"""The default size of a buffer."""

LARGE_FILE_BYTES = 1 << 20


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Large files over TLS that a pool reads 32 KiB at a time."""
    if "aio" not in context.names:
        return
    secure = tls_servers(context.listeners)
    reported: set[Directive] = set()
    missing: dict[str, None] = {}
    for served in context.served:
        scope = served.scope
        aio, buffers = scope.effective("aio"), scope.effective("output_buffers")
        size = parse_bytes(buffers.args[1]) if buffers and len(buffers.args) > 1 else SMALL_BYTES
        if (
            aio is None or aio in reported or scope.server not in secure or not offloads(served)
            or size is None or size > SMALL_BYTES or scope.effective("ssl_conf_command")
        ):  # fmt: skip
            continue
        dataset = covering(served.path, context.facts.datasets)
        sizes = None if dataset is None else dataset.sizes
        if dataset is None or (sizes is None and dataset.files != 0):
            missing[f"datasets[{served.root}].sizes"] = None
        elif sizes is not None and sizes.mean_bytes >= LARGE_FILE_BYTES:
            reported.add(aio)
            tasks = round(sizes.mean_bytes / size)
            yield Hit(
                aio,
                f"a file of average size here is read in {tasks} tasks of {size >> 10} KiB",
                [
                    default("output_buffers", "2 32k") if buffers is None else written(buffers),
                    Evidence(
                        fact=f"datasets[{dataset.path}].sizes.mean_bytes",
                        value=sizes.mean_bytes,
                        unit="bytes",
                    ),
                ],
            )
    if missing:
        yield MissingFacts(tuple(missing))


_CONF = """
events { }
http { server {
    listen 443 ssl;
    location / { root /srv/media; aio threads; %s }
} }
"""
_HOST = linux(datasets={"/srv/media": (256, 0.1)}, mean_file_bytes=4 << 20)

RULE = Rule(
    id="io-tls-small-output-buffers",
    severity="advice",
    title="a pool reads large files over TLS in small chunks",
    why="TLS cannot use sendfile: files are read into output_buffers, and with aio threads every "
    "chunk is its own task. A file of 8 MB takes 245 tasks of 32 KiB, against 4 of 2 MiB over "
    "plain HTTP.",
    fix="Set output_buffers 2 256k; there (256 KiB more per active transfer), and compare.",
    sources=(
        "nginx: src/core/ngx_output_chain.c, ngx_output_chain_copy_buf",
        "https://nginx.org/en/docs/http/ngx_http_core_module.html#output_buffers",
    ),
    proof="source-only",
    since="1.7.11",
    by_absence=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "output_buffers 2 256k;", _HOST),
    check=check,
)
