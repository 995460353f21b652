"""Buffers of access logs: the decision ``access-log``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from nginx_tune.conf.logs import is_a_device
from nginx_tune.decide.answer import known, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Setting

FORMAT = "nginx_tune"
"""Name of the log format that every skeleton declares."""
BUSY_PER_SECOND = 100.0
"""Below this rate a write for each request is nothing."""
BUFFER = ("buffer=64k", "flush=1s")
_IN_A_CONTAINER: Final = (
    "nginx runs in a container, in whose image it can be a link to a pipe, and was not looked at"
)
MOST_BUFFERED = 64
"""Logs: 4 MiB of buffers in each worker."""


def decide_access_log(s: Situation, _plan: PoolPlan) -> Decision:
    """``access-log``: one write for many requests.

    Every log line is a write() in the loop, on a disk that may be busy with other things. With a
    buffer one write carries hundreds of lines; the price is that lines come up to a second late and
    that a crash loses those of the last second. Below a hundred requests a second it does not
    matter.

    A request may be written to several logs, and servers have logs of their own: each that can have
    a buffer gets one, and of the others it is said why not. With more than 64 logs the first alone
    gets one, since each takes 64 KiB in every worker.
    """
    path, rate = s.site.access_log, s.rate
    if path is None:
        return Decision(
            id="access-log",
            verdict="keep",
            summary="As the build has it: the path of the access log is not known.",
            confidence="low",
            flips_when=["[site] access_log names the file"],
        )
    if path == "off":
        line = setting("access-log", "http", "access_log", "off", reason="the site wants none")
        return Decision(
            id="access-log",
            verdict="keep",
            summary="Off, as the site says.",
            settings=[line],
            confidence="high",
        )
    logs = [path, *(log for log in s.site.other_access_logs if log not in (path, "off"))]
    hindered = {log: why for log in logs if (why := why_no_buffer(log, s.site.piped_logs))}
    unseen = [one for one in logs if one not in hindered and one not in s.site.plain_logs]
    running = s.facts.nginx.running
    if running is not None and running.other_mount_namespace:
        hindered |= dict.fromkeys(unseen, _IN_A_CONTAINER)
        unseen = []
    if len(hindered) == len(logs):
        return Decision(
            id="access-log",
            verdict="not_applicable",
            summary=f"As it is: {hindered[path]}.",
            settings=[_as_it_is(log, why) for log, why in hindered.items()],
            confidence="high",
            flips_when=["the log is written to a file of its own"],
        )
    if rate.value is not None and rate.value < BUSY_PER_SECOND:
        reason = f"unbuffered: {rate.value:.3g} requests a second need no buffer"
        return Decision(
            id="access-log",
            verdict="keep",
            summary=f"{reason[0].upper()}{reason[1:]}.",
            settings=[_as_it_is(log, reason) for log in logs],
            evidence=known(rate),
            confidence="medium",
        )
    files = [log for log in logs if log not in hindered]
    risks = ["a crash loses the lines of the last second"]
    risks += [f"{log} gets no buffer: {why}" for log, why in hindered.items()]
    if len(files) > MOST_BUFFERED:
        risks.append(
            f"{len(files) - 1} more logs get no buffer, each of which would take 64 KiB in every "
            "worker: buffer=64k flush=1s for those that are written most"
        )
        hindered |= dict.fromkeys(files[1:], "")
    if unseen:
        risks.append(_must_be_files(unseen))
    reason = "one write() for many requests, at most a second late"
    return Decision(
        id="access-log",
        verdict="set",
        summary=f"{reason[0].upper()}{reason[1:]}.",
        settings=[
            _as_it_is(log, hindered[log])
            if log in hindered
            else setting("access-log", "http", "access_log", log, FORMAT, *BUFFER, reason=reason)
            for log in logs
        ],
        evidence=known(rate),
        confidence="low" if rate.value is None else "medium",
        flips_when=[f"the request rate is known to be below {BUSY_PER_SECOND:.0f} a second"]
        if rate.value is None
        else [],
        risks=risks,
    )


def _must_be_files(logs: Sequence[str]) -> str:
    named = logs[0] if len(logs) == 1 else f"{logs[0]} and {len(logs) - 1} more"
    return (
        f"{named} must be a plain file: that was not seen, and through a pipe, or a link to one "
        "(/dev/stdout in the official images), buffers of several workers tear lines"
    )


def _as_it_is(log: str, reason: str) -> Setting:
    return setting("access-log", "http", "access_log", log, FORMAT, reason=reason)


def why_no_buffer(path: str, piped: Collection[str] = ()) -> str | None:
    """The reason why a log takes no buffer; null for a plain file.

    A buffer is one write(2), and one of more than PIPE_BUF (4096 bytes) goes into a pipe in parts,
    with those of other workers between them: lines are torn. To a file it is in one piece
    (O_APPEND).

    Source: ngx_http_log_set_log(), which refuses a buffer for syslog and for names with variables;
            ngx_http_log_flush(); pipe(7), PIPE_BUF.
    """
    if path.startswith("syslog:"):
        return "syslog is sent a datagram for each line, and takes no buffer"
    if "$" in path:
        return "a log whose name has variables takes no buffer"
    if is_a_device(path):
        return f"whoever reads {path} wants each line when it is written"
    if path in piped:
        return f"{path} is no file but a pipe or the like, where workers' buffers tear lines"
    return None
