"""Buffers of access logs: the decision ``access-log``."""

from collections.abc import Collection, Sequence
from typing import Final

from nginx_tune.conf.logs import is_a_device
from nginx_tune.decide.answer import known, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Setting

FORMAT = "nginx_tune"
"""Log format that a generated configuration declares for its access logs."""
BUSY_PER_SECOND = 100.0
"""Requests per second below which a write for each request has no noticeable cost."""
BUFFER = ("buffer=64k", "flush=1s")
_IN_A_CONTAINER: Final = (
    "nginx runs in a container, where the log may be a link to a pipe; it was not examined"
)
MOST_BUFFERED = 64
"""Maximum number of logs that get a buffer. Together these buffers take 4 MiB in each worker."""


def decide_access_log(s: Situation, _plan: PoolPlan) -> Decision:
    """``access-log``: one write for many requests.

    Every log line is a write() in the event loop, to a disk that may be busy. With a buffer one
    write carries hundreds of lines. In return, lines appear up to a second late, and a crash loses
    the last second. Below a hundred requests a second it does not matter.

    A request may go to several logs, and servers may have their own. Each log that can have a
    buffer gets one; for the others the reason is given. With more than 64 logs only the first gets
    one, since each buffer takes 64 KiB in every worker.
    """
    path, rate = s.site.access_log, s.rate
    if path is None:
        return Decision(
            id="access-log",
            verdict="keep",
            summary="The build's default: the path of the access log is not known.",
            confidence="low",
            flips_when=["[site] access_log names the file"],
        )
    if path == "off":
        line = setting("access-log", "http", "access_log", "off", reason="off in the site file")
        return Decision(
            id="access-log",
            verdict="keep",
            summary="Off, as set in the site file.",
            settings=[line],
            confidence="high",
        )
    logs = [path, *(log for log in s.site.other_access_logs if log not in (path, "off"))]
    hindered = {log: why for log in logs if (why := why_no_buffer(log, s.site.piped_logs))}
    unseen = [log for log in logs if log not in hindered and log not in s.site.plain_logs]
    running = s.facts.nginx.running
    if running is not None and running.other_mount_namespace:
        hindered |= dict.fromkeys(unseen, _IN_A_CONTAINER)
        unseen = []
    if len(hindered) == len(logs):
        return Decision(
            id="access-log",
            verdict="not_applicable",
            summary=f"Unchanged: {hindered[path]}.",
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
            f"{len(files) - 1} more logs get no buffer, since each would take 64 KiB in every "
            "worker: add buffer=64k flush=1s to the busiest ones"
        )
        hindered |= dict.fromkeys(files[1:], "")
    if unseen:
        risks.append(_must_be_files(unseen))
    reason = "one write() for many requests; lines appear at most a second late"
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
    more = f" and {len(logs) - 1} more" if len(logs) > 1 else ""
    what = "regular files" if more else "a regular file"
    return (
        f"{logs[0]}{more} must be {what}, which was not checked: in a pipe, or a link to one "
        "(/dev/stdout in the official images), the buffers of several workers tear lines"
    )


def _as_it_is(log: str, reason: str) -> Setting:
    return setting("access-log", "http", "access_log", log, FORMAT, reason=reason)


def why_no_buffer(path: str, piped: Collection[str] = ()) -> str | None:
    """The reason why a log can have no buffer; None for a regular file.

    A buffer is one write(2). A pipe takes more than PIPE_BUF (4096 bytes) in parts, between which
    other workers write, so lines are torn. A file takes it in one piece (O_APPEND).

    Source: ngx_http_log_set_log(), which refuses a buffer for syslog and for names with variables;
            ngx_http_log_flush(); pipe(7), PIPE_BUF.
    """
    if path.startswith("syslog:"):
        return "syslog gets a datagram for each line, without a buffer"
    if "$" in path:
        return "a log whose name has variables cannot have a buffer"
    if is_a_device(path):
        return f"readers of {path} expect each line at once"
    if path in piped:
        return f"{path} is not a regular file, and in a pipe the buffers of workers tear lines"
    return None
