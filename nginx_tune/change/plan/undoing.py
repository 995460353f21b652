"""What stands in a configuration against a decision, with the settings that undo it."""

from __future__ import annotations

from collections.abc import Callable

from nginx_tune.change.plan.standing import Standing
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.listeners import has_own_queues, listeners
from nginx_tune.conf.served import sends_no_files
from nginx_tune.conf.thread_pools import asked_pool
from nginx_tune.decide.accept import EPOLLEXCLUSIVE
from nginx_tune.decide.answer import setting
from nginx_tune.documents.decisions import Decision, Setting

_DEFAULT_CHUNK = "2m"

Undo = Callable[[Decision, Standing], list[tuple[Directive, list[Setting]]]]


def _threads(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    direct = {
        id(scope.effective("aio"))
        for scope in standing.answering
        if scope.value("directio", "off") != "off"
    }
    sending = (scope for scope in standing.answering if not sends_no_files(scope))
    lines = {id(a): a for scope in sending if (a := scope.effective("aio"))}
    why = "all data fits in memory, or waiting costs less than offloading"
    return [
        (line, [setting("thread-pools", "location", "aio", "off", reason=why)])
        for line in lines.values()
        # What directio reads comes from the disk each time, whatever fits in memory.
        if asked_pool(line) is not None and id(line) not in direct
    ]


def _accepting(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    """None for one worker, which takes all; each rule of the audit has its own condition."""
    if decision.verdict == "not_applicable":
        return []
    why = "one worker would take most connections"
    found = []
    names = [] if has_own_queues(listeners(standing.tree)) else ["multi_accept"]
    if not any(one.fact == EPOLLEXCLUSIVE and one.value is False for one in decision.evidence):
        names.append("accept_mutex")
    for name in names:
        wanted = setting("accept", "events", name, "off", reason=why)
        line = standing.lines(wanted)[0]
        if line is not None and line.value.lower() == "on":
            found.append((line, [wanted]))
    return found


def _own_queues(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    """An option of ``listen`` has no line that undoes it: it is named, and goes by hand."""
    if decision.verdict != "disable":
        return []
    lines = [one.reuseport for one in listeners(standing.tree) if not one.is_quic]
    return [(line, []) for line in lines if line is not None]


def _open_files(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    wanted = setting(
        "open-file-cache", "http", "open_file_cache", "off", reason="it would mostly churn"
    )
    return [
        (line, [wanted]) for line in standing.lines(wanted) if line and line.value.lower() != "off"
    ]


def _direct(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = "the disk would work more, for what the page cache could answer"
    wanted = setting("directio", "http", "directio", "off", reason=why)
    return [
        (line, [wanted]) for line in standing.lines(wanted) if line and line.value.lower() != "off"
    ]


def _kernel_tls(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "disable":
        return []
    why = "SSL_sendfile() runs on the loop and would go round the pool"
    wanted = setting("ktls", "http", "ssl_conf_command", "Options", "-KTLS", reason=why)
    found = []
    for line in standing.lines(wanted):
        options = "" if line is None else " ".join(line.args[1:]).lower()
        if line is not None and "ktls" in options and "-ktls" not in options:
            found.append((line, [wanted]))
    return found


def _unbounded(decision: Decision, standing: Standing) -> list[tuple[Directive, list[Setting]]]:
    if decision.verdict != "keep" or decision.settings:
        return []
    why = "without a bound one cold read can hold the loop for a whole file"
    wanted = setting("sendfile-max-chunk", "http", "sendfile_max_chunk", _DEFAULT_CHUNK, reason=why)
    return [(line, [wanted]) for line in standing.lines(wanted) if line and line.value == "0"]


UNDO: dict[str, Undo] = {
    "thread-pools": _threads,
    "accept": _accepting,
    "reuseport": _own_queues,
    "open-file-cache": _open_files,
    "directio": _direct,
    "ktls": _kernel_tls,
    "sendfile-max-chunk": _unbounded,
}
