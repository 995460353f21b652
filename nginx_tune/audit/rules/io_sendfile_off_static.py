from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, default, written
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.audit.storage import storage_of
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import tls_servers
from nginx_tune.conf.served import Served
from nginx_tune.conf.values import parse_bytes
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts_storage import is_shared_folder


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Files that the worker copies itself to send them over plain HTTP."""
    secure = tls_servers(context.listeners)
    by_line: dict[Directive, list[Served]] = {}
    for served in context.served:
        scope = served.scope
        if (
            scope.value("sendfile", "off") == "off"
            and not _is_direct(served)
            and scope.server not in secure
        ):
            by_line.setdefault(scope.effective("sendfile") or served.place, []).append(served)
    missing: dict[str, None] = {}
    for place, places in by_line.items():
        storages = {served: storage_of(served.path, context.facts) for served in places}
        known = {served: found.filesystem for served, found in storages.items() if found}
        disk = next((served for served, kind in known.items() if not is_shared_folder(kind)), None)
        if disk is not None:
            explicit = disk.scope.effective("sendfile")
            yield Hit(
                place,
                f"files under {disk.path} are copied through the worker's buffers",
                [
                    default("sendfile", "off") if explicit is None else written(explicit),
                    Evidence(fact=f"file system under {disk.path}", value=known[disk]),
                ],
            )
        elif len(known) < len(places):
            missing[f"storage.paths[{places[0].root}]"] = None
    if missing:
        yield MissingFacts(tuple(missing))


def _is_direct(served: Served) -> bool:
    """True if nearly all files are read with ``directio``, which bypasses sendfile.

    Files smaller than its argument use sendfile. Source: ngx_output_chain_as_is() in
    ngx_output_chain.c.
    """
    line = served.scope.value("directio", "off")
    least = parse_bytes(line)
    return line != "off" and (least is None or least <= _LARGE_BYTES)


_LARGE_BYTES = 1 << 20
"""Size that nearly all files of a site with directio exceed."""

_CONF = "events { } http { %s server { listen 80; location / { root /srv/www; } } }"
_HOST = linux(disks={"/srv/www": ("nvme0n1", "nvme")})

RULE = Rule(
    id="io-sendfile-off-static",
    severity="warning",
    title="files are served without sendfile",
    why="Each chunk is read into a buffer of the worker and written to the socket again: two "
    "copies that sendfile avoids. tcp_nopush has no effect either. sendfile is off by default.",
    fix="Set sendfile on; in http (with sendfile_max_chunk before nginx 1.21.4), but not on shared "
    "folders of virtual machines.",
    sources=("https://nginx.org/en/docs/http/ngx_http_core_module.html#sendfile",),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    bad=Example(_CONF % "", _HOST),
    good=Example(_CONF % "sendfile on;", _HOST),
    check=check,
)
