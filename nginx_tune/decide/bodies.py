"""Bodies that pass through nginx's memory: ``ktls``, ``gzip``, ``output-buffers``."""

import re

from nginx_tune.decide.answer import (
    LEARN_COMMAND,
    Quantity,
    effective_cpus,
    known,
    not_applicable,
    setting,
    validate_command,
    version_evidence,
)
from nginx_tune.decide.defaults import GZIP_SHARE, gzip_cpus
from nginx_tune.decide.model.reads import BUFFER_BYTES
from nginx_tune.decide.model.sending import ENCRYPTED_BYTES_PER_SECOND
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Predicted
from nginx_tune.documents.site import COMPRESSED_ORIGIN
from nginx_tune.documents.units import nginx_size, number_text, percent_text

_OPENSSL_MAJOR = re.compile(r"OpenSSL (\d+)\.")
_SENDFILE_OPENSSL = 3


def decide_ktls(s: Situation, plan: PoolPlan) -> Decision:
    """``ktls``: encryption by the kernel, so that TLS can use sendfile.

    With kernel TLS nginx (1.21.4 with OpenSSL 3) sends files with ``SSL_sendfile()``, without a
    copy through its buffers. But it makes that call in the event loop, whatever ``aio`` says, so
    kernel TLS cancels the benefit of thread pools: a page-cache miss blocks the worker again. Where
    all data is in memory nothing blocks and the copies are saved. How much that gains depends on
    cipher and link; it is left to a comparison.

    It is off unless ``ssl_conf_command Options KTLS`` or OpenSSL's own configuration turns it on.
    HTTP/3 and bodies compressed on the fly cannot use it.
    """
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
            "Unchanged: no thread pool conflicts with it, and it saves a copy of every body; only "
            "a comparison shows the gain (ssl_conf_command Options KTLS)."
        )
    else:
        summary = "Unchanged: it depends on whether reads block the loop, which is not known."
    return Decision(
        id="ktls",
        verdict="not_enough_evidence",
        summary=summary,
        evidence=evidence,
        confidence="low",
        flips_when=["thread-pools is enabled: then kernel TLS must be off"],
        risks=["with kernel TLS a page-cache miss blocks the loop even with aio threads"],
        next_command=validate_command(s.facts),
    )


def _off(s: Situation, in_use: Quantity, evidence: list[Evidence]) -> Decision:
    reason = "SSL_sendfile() runs in the event loop and bypasses the pool"
    settings = []
    if in_use.value:
        settings = [setting("ktls", "http", "ssl_conf_command", "Options", "-KTLS", reason=reason)]
    return Decision(
        id="ktls",
        verdict="disable",
        summary=f"{'Off' if in_use.value else 'Leave it off'}: {reason}, so cold files would "
        "block the workers again.",
        settings=settings,
        evidence=evidence,
        confidence="high" if in_use.value is not None else "medium",
        flips_when=["thread-pools is disabled"],
        next_command=validate_command(s.facts),
    )


def _lacking(s: Situation) -> Decision | None:
    if s.kind == "proxy":
        return not_applicable("ktls", "A proxy without a cache sends no files.")
    if not s.tls:
        return not_applicable("ktls", "The site has no TLS.", flips="the site has TLS")
    if s.workload.http_version.value == "3" or s.workload.gzip.value:
        return not_applicable("ktls", "HTTP/3 and compressed bodies cannot use it.")
    if not s.build.at_least(1, 21, 4):
        return not_applicable(
            "ktls",
            f"nginx {s.build.text} cannot use it for files.",
            flips="nginx is 1.21.4 or newer",
        )
    if not s.is_linux or s.facts.kernel.features.get("tls") is False:
        return not_applicable(
            "ktls", "This kernel has no kernel TLS.", flips="the kernel has loaded the tls module"
        )
    library = s.facts.nginx.openssl or s.facts.nginx.openssl_built or ""
    major = _OPENSSL_MAJOR.match(library)
    if library and (major is None or int(major[1]) < _SENDFILE_OPENSSL):
        return not_applicable(
            "ktls",
            "This TLS library cannot send files.",
            flips="nginx runs with OpenSSL 3 or newer",
        )
    return None


_WHY_GZIP = {
    "gzip_vary": "lets caches distinguish clients by Accept-Encoding",
    "gzip_proxied": "for clients behind a proxy too",
    "gzip_min_length": "shorter responses fit into one packet anyway",
    "gzip_types": "text; images, fonts and archives are compressed already",
    "gzip_static": "serves FILE.gz in place of FILE",
}


def decide_gzip(s: Situation, _plan: PoolPlan) -> Decision:
    """``gzip``: compression of text responses, where a tenth of the CPUs is enough for it.

    Text shrinks to about a third (lzbench: 36 % for the Silesia files at level 1), which helps
    clients on slow links. But every response is compressed again: one CPU compresses about 60 MB a
    second at level 1 (half of lzbench's figure, measured at 4.7 GHz), so 400,000 responses of 4 KiB
    a second take 27 CPUs. For a proxy or cache all bytes count, since it is not known which are
    text; for files a twentieth does, more than the HTML of most sites. Where compression would take
    more than a tenth of the CPUs at the peak it is left off; responses that upstreams compress are
    passed on (``Accept-Encoding`` reaches them). Files do not change between requests, so ``gzip
    -k`` and ``gzip_static`` (``generate --with gzip-static``) cost nothing.

    An existing configuration keeps its gzip settings.
    """
    lines = s.site.gzip or []
    is_on = "gzip on" in lines
    asked = gzip_cpus(s.facts, s.workload, s.kind, lines if is_on else None)
    cpus = effective_cpus(s.facts)
    takes = Quantity("CPUs that gzip takes at the peak (model)", asked, "CPUs", s.rate.provenance)
    share = None if asked is None or not cpus.value else asked / cpus.value
    evidence = known(s.rate, s.object_bytes, takes, cpus)
    budget = f"at the peak it would take {number_text(asked)} of {cpus.text}; its budget is a tenth"
    is_dear = share is not None and share > GZIP_SHARE
    risks = [f"{takes.text} at the peak is more than a tenth of them"] * (is_on and is_dear)
    if is_on or lines:
        why = "text responses get smaller"
        if is_on and share:
            why += f", for {percent_text(share, 2)} of the CPUs at the peak"
        reasons = {"gzip": why, **_WHY_GZIP}
        return Decision(
            id="gzip",
            verdict="set",
            summary=f"{why[0].upper()}{why[1:]}." if is_on else "Only precompressed files.",
            settings=[
                setting("gzip", "http", name, *args, reason=reasons.get(name, ""))
                for name, *args in map(str.split, lines)
            ],
            evidence=evidence,
            confidence="medium" if share is not None else "low",
            flips_when=["compression at the peak takes more than a tenth of the CPUs"],
            risks=risks,
            next_command="" if share is not None else LEARN_COMMAND,
        )
    if COMPRESSED_ORIGIN in s.site.features:
        why = "Left off: the upstreams compress, and nginx passes their responses on."
    elif is_dear:
        why = f"Left off: {budget}."
    elif s.kind == "media":
        why = "Left off: videos and archives are compressed already."
    else:
        why = "Left off, as in the site file or the installed configuration."
    return Decision(
        id="gzip",
        verdict="disable" if is_dear else "keep",
        summary=why,
        evidence=evidence,
        confidence="medium",
        flips_when=["the peak rate falls, or there are more CPUs"] if is_dear else [],
    )


BUFFERS = 2
LARGE_BUFFER_BYTES = 256 << 10
"""Largest buffer with the kernel's read-ahead; a larger one gains next to nothing."""
DIRECT_BUFFER_BYTES = 1 << 20
"""Largest buffer without read-ahead, where each disk read is one buffer long."""
BUFFERS_MEMORY_SHARE = 0.05
"""Share of the page cache that the output buffers of all transfers may take."""


def output_bytes(s: Situation, largest: int) -> int:
    """Size of an output buffer: a power of two up to ``largest`` for which there is memory.

    Over TLS the loop must also be able to encrypt the buffer in the time that objectives allow.
    """
    cache, peak = s.page_cache.value or 0.0, s.concurrency.value or 0.0
    room = BUFFERS_MEMORY_SHARE * cache / max(1.0, peak) / BUFFERS
    if s.tls and s.aim.wait_seconds is not None:
        room = min(room, s.aim.wait_seconds * ENCRYPTED_BYTES_PER_SECOND)
    size = BUFFER_BYTES
    while size * 2 <= min(room, largest):
        size *= 2
    return size


def _or_time(s: Situation) -> str:
    return f", or the objective is short ({s.aim.limit_text})" if s.aim.limit_text else ""


def decide_output_buffers(s: Situation, plan: PoolPlan) -> Decision:
    """``output-buffers``: read size where sendfile cannot be used.

    TLS, gzip and HTTP/3 need the bytes in nginx's memory, so files are read one buffer at a time:
    8 MB take 245 reads, each a pool task, with the default of ``2 32k``, and 16 with buffers of
    512 KiB. Larger buffers pay only with a pool, since without one a larger read blocks the loop
    for longer. Each transfer has two of them in memory. Over TLS the loop encrypts a whole buffer
    in one turn; where an objective limits a time, that turn takes at most a tenth of it.
    """
    folder = s.shared_folder
    copies = f"sendfile is off on {folder}" if folder else s.stays.no_sendfile
    is_off = copies != ""
    if s.kind == "proxy" or not (s.tls or is_off or (s.cleartext_http2 and plan.on)):
        return not_applicable(
            "output-buffers",
            "Files are sent with sendfile, which uses no buffers.",
            flips="the site has TLS",
        )
    if not plan.on:
        return not_applicable(
            "output-buffers",
            (f"{copies}, but reads" if is_off else "Reads")
            + " stay in the event loop, which larger ones would block for longer.",
            flips="thread-pools is enabled",
        )
    mean, cache, peak = s.object_bytes, s.page_cache, s.concurrency
    evidence = s.aim.evidence + known(mean, cache, peak)
    size = output_bytes(s, min(LARGE_BUFFER_BYTES, int(mean.value or 0)))
    if size == BUFFER_BYTES:
        return Decision(
            id="output-buffers",
            verdict="keep",
            summary=f"The default of 2 32k: objects are small, memory is short{_or_time(s)}.",
            evidence=evidence,
            confidence="medium",
            flips_when=["objects are larger than 64 KiB and memory has room for larger buffers"],
        )
    tasks = BUFFER_BYTES / size
    text = nginx_size(size)
    return Decision(
        id="output-buffers",
        verdict="raise",
        summary=f"{BUFFERS} {text}: files are read one buffer at a time, each a pool task.",
        settings=[
            setting(
                "output-buffers",
                "http",
                "output_buffers",
                str(BUFFERS),
                text,
                reason="each buffer takes one pool task, and these are "
                f"{1 / tasks:.0f} times as large as the default ones",
            )
        ],
        evidence=evidence,
        predicted=[
            Predicted(
                metric="ratio(pool tasks a response)", low=tasks, expected=tasks, high=tasks * 2
            )
        ],
        confidence="medium",
        flips_when=["the site drops TLS" if s.tls else "sendfile can be used"],
        risks=[f"each transfer holds up to {nginx_size(size * BUFFERS)} of memory"],
    )
