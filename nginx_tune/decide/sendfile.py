"""``sendfile``: file bytes to the socket without a copy through nginx.

On for every site that serves files: the kernel moves pages from its cache to the socket. TLS,
gzip and HTTP/3 cannot use it, and it does no harm there. Off on shared folders of virtual machines,
which hand stale pages to it. Off where thread pools read for cleartext HTTP/2: of one connection
one sendfile() is in the pool at a time, so that all its streams wait for the cold one, and each
frame is a task of its own. Measured (``benchmarks/scenarios/http2-cold-files.toml``): p90 of 52 ms,
0.3 ms without.
Source: ngx_linux_sendfile_thread(), ngx_http_v2_filter_send().

``tcp_nopush`` beside it is neither written nor taken out, and a whole file keeps it where the
installed one has it. It saves a packet and a wake-up of the client for each response (small files
at 20,000 a second over loopback: what needs no file took 1.2 ms with it, 2.1 without), and over
loopback and veth (kernel 6.18) responses of 128 KiB to a client that had paused came 10 to 80 ms
later with it (benchmarks/README.md, tcp_nopush).
"""

from __future__ import annotations

from typing import Final

from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.decide.storage import filesystems_under
from nginx_tune.documents.decisions import Decision, Evidence

ID: Final = "sendfile"
COPIED: Final = "io-sendfile-off-static"
"""The audit's rule that this goes against on purpose."""
FILESYSTEM: Final = "storage.paths filesystem"


def decide_sendfile(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache sends from memory, not from files.")
    shared = s.shared_folder
    if shared is not None:
        return Decision(
            id=ID,
            verdict="disable",
            summary=f"Off: {shared} serves stale or short files through sendfile.",
            settings=[
                setting(ID, "http", "sendfile", "off", reason=f"{shared} is a shared folder")
            ],
            evidence=[Evidence(fact=FILESYSTEM, value=shared)],
            confidence="medium",
            flips_when=["the files move to a local file system"],
        )
    if s.cleartext_http2 and plan.on:
        why = "of a cleartext HTTP/2 connection one sendfile() is in the pool at a time"
        reason = f"nginx-tune: ignore[{COPIED}] {why}"
        known = s.workload.http_version.provenance != "assumed"
        fact = "workload.http_version.value" if known else "site.cleartext_http2"
        return Decision(
            id=ID,
            verdict="disable",
            summary="Off beside the pools: of a cleartext HTTP/2 connection only one sendfile() is "
            "in the pool at a time, and all its streams wait for it.",
            settings=[setting(ID, "http", "sendfile", "off", reason=reason)],
            evidence=[
                Evidence(
                    fact=fact,
                    value=s.http_version if known else True,
                    provenance=s.workload.http_version.provenance if known else "declared",
                ),
                Evidence(fact="workload.tls", value=s.tls, provenance=s.workload.tls.provenance),
            ],
            confidence="medium",
            flips_when=["thread-pools is off", "clients speak TLS or HTTP/1.1"],
            risks=["file bytes are copied through nginx's memory: more CPU for each byte"],
        )
    offload = " (in the pool, a chunk at a time)" if plan.on else ""
    reason = f"no copy through nginx's memory{offload}"
    if s.tls:
        reason = "for cleartext and kernel TLS; other TLS bodies are read into output_buffers"
    settings = [setting(ID, "http", "sendfile", "on", reason=reason)]
    summary = "On: file bytes go to the socket without a copy through nginx's memory."
    if s.tls:
        summary = "On: without effect on TLS bodies, which are read and encrypted, but harmless."
    return Decision(
        id=ID,
        verdict="enable",
        summary=summary,
        settings=settings,
        evidence=[
            Evidence(fact="workload.tls", value=s.tls, provenance=s.workload.tls.provenance),
            *[
                Evidence(fact=FILESYSTEM, value=one)
                for one in filesystems_under(s.site.roots, s.facts.storage)
            ],
        ],
        confidence="high",
        flips_when=["the files are on a virtual machine's shared folder"],
    )
