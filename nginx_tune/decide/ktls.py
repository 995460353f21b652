"""``ktls``: whether the kernel encrypts, so that TLS can use sendfile.

With kernel TLS nginx (1.21.4 with OpenSSL 3) sends files by ``SSL_sendfile()``: no copy through
its buffers. But it calls that in the loop, whatever ``aio`` says, so where thread pools are
wanted kernel TLS takes away what they give: a page-cache miss blocks the worker again. Where all
data is in memory nothing blocks and the saved copies remain; how much that is depends on cipher
and link, and is not predicted here but left to a comparison.

It is off unless ``ssl_conf_command Options KTLS`` or OpenSSL's own configuration asks for it.
HTTP/3 and bodies that are compressed on the way cannot use it.
"""

from __future__ import annotations

import re
from typing import Final

from nginx_tune.decide.answer import not_applicable, setting, validate_command
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence

ID: Final = "ktls"
_OPENSSL_MAJOR = re.compile(r"OpenSSL (\d+)\.")
_SENDFILE_OPENSSL = 3


def decide_ktls(s: Situation, plan: PoolPlan) -> Decision:
    """The decision."""
    lacking = _lacking(s)
    if lacking is not None:
        return lacking
    running = s.facts.nginx.running
    in_use = Quantity(
        "nginx.running.ktls_connections", running.ktls_connections if running else None
    )
    evidence = [
        version_evidence(s.build),
        Evidence(fact="kernel.features[tls]", value=s.facts.kernel.features.get("tls")),
        *known(in_use, s.dataset_bytes, s.page_cache),
    ]
    if plan.on:
        return _off(s, in_use, evidence)
    if plan.judgement.verdict == "disable":
        summary = (
            "Left as it is: no pool stands against it, and it saves a copy of every body; how "
            "much that is here only a comparison tells (ssl_conf_command Options KTLS)."
        )
    else:
        summary = "Left as it is: whether reads block the loop decides, and that is not known."
    return Decision(
        id=ID,
        verdict="not_enough_evidence",
        summary=summary,
        evidence=evidence,
        confidence="low",
        flips_when=["thread-pools is enabled: then kernel TLS is to be off"],
        risks=["a page-cache miss then blocks the loop, also with aio threads"],
        next_command=validate_command(s),
    )


def _off(s: Situation, in_use: Quantity, evidence: list[Evidence]) -> Decision:
    reason = "SSL_sendfile() runs on the loop and would go round the pool"
    settings = []
    if in_use.value:
        settings = [setting(ID, "http", "ssl_conf_command", "Options", "-KTLS", reason=reason)]
    return Decision(
        id=ID,
        verdict="disable",
        summary=f"{'Off' if in_use.value else 'Leave it off'}: {reason}, so cold files would "
        "block the workers again.",
        settings=settings,
        evidence=evidence,
        confidence="high" if in_use.value is not None else "medium",
        flips_when=["thread-pools is disabled"],
        next_command=validate_command(s),
    )


def _lacking(s: Situation) -> Decision | None:
    if s.kind == "proxy":
        return not_applicable(ID, "A proxy without a cache sends no files.")
    if not s.tls:
        return not_applicable(ID, "The site speaks no TLS.", flips="the site speaks TLS")
    if s.workload.http_version.value == "3" or s.workload.gzip.value:
        return not_applicable(ID, "HTTP/3 and compressed bodies need the bytes in memory.")
    if not s.build.at_least(1, 21, 4):
        return not_applicable(
            ID,
            f"nginx {s.build.text} cannot use it for files.",
            flips="nginx is 1.21.4 or newer",
        )
    if not s.is_linux or s.facts.kernel.features.get("tls") is False:
        return not_applicable(
            ID, "This kernel has no TLS.", flips="the kernel has the tls module loaded"
        )
    library = s.facts.nginx.openssl or s.facts.nginx.openssl_built or ""
    major = _OPENSSL_MAJOR.match(library)
    if library and (major is None or int(major[1]) < _SENDFILE_OPENSSL):
        return not_applicable(
            ID, "This TLS library cannot send files.", flips="nginx runs with OpenSSL 3 or newer"
        )
    return None
