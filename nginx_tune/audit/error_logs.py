"""The error logs of the main context among the facts."""

from __future__ import annotations

from nginx_tune.audit.context import Context
from nginx_tune.audit.rule import MissingFacts
from nginx_tune.conf.error_log import main_error_logs
from nginx_tune.documents.decisions import Evidence
from nginx_tune.documents.facts import ErrorLog


def main_logs(context: Context) -> list[ErrorLog] | MissingFacts:
    """What the logs say that get everything outside of requests."""
    compiled_in = context.facts.nginx.error_log_path
    if not context.tree.main.all("error_log") and compiled_in is None:
        return MissingFacts(("nginx.error_log_path",))
    wanted = main_error_logs(context.tree, compiled_in)
    logs = [log for log in context.facts.error_logs if log.path in wanted]
    if logs:
        return logs
    return MissingFacts(tuple(f"error_logs[{path}]" for path in wanted) or ("error_logs",))


def lines_seen(log: ErrorLog, what: str, count: int) -> Evidence:
    """How often a log says something; of a long one only the end was read."""
    part = ""
    if not log.complete:
        size = "" if log.bytes_read is None else f"{log.bytes_read >> 20} MiB of "
        part = f"the last {size}" if size else "the end of "
    return Evidence(fact=f"{what} lines in {part}{log.path}", value=count, unit="lines")
