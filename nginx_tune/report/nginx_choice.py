"""Which nginx was meant, and why not another: the words for it in every output."""

from __future__ import annotations

from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.facts_nginx import IN_CONTAINER
from nginx_tune.report.text import plain

MOST_OTHERS = 8
MOST_PROCESSES = 4
"""A host of containers runs the same program many times, all left for the same reason."""


def choice_lines(nginx: Nginx) -> list[str]:
    """The one that was taken, and a line for each program and reason that was not."""
    others: dict[tuple[str, str], list[int]] = {}
    for one in nginx.candidates:
        if not one.chosen:
            pids = others.setdefault((one.binary or "the program", one.reason), [])
            pids += [one.pid] if one.pid else []
    lines = [plain(nginx.choice or "no nginx is taken; name one with --nginx")]
    for (binary, reason), pids in [*others.items()][:MOST_OTHERS]:
        lines.append(plain(f"not taken: {binary}{_processes(pids)}: {reason}"))
    more = len(others) - MOST_OTHERS
    return [*lines, f"and {more} more"] if more > 0 else lines


def is_doubtful(nginx: Nginx) -> bool:
    """Whether another one could have been meant, where none was named.

    Not one in a container where that of the host itself was taken.
    """
    chosen = next((one for one in nginx.candidates if one.chosen), None)
    if chosen is not None and chosen.source == "named":
        return False
    is_of_host = chosen is not None and IN_CONTAINER not in chosen.reason
    return any(
        not one.chosen and not (is_of_host and IN_CONTAINER in one.reason)
        for one in nginx.candidates
    )


def _processes(pids: list[int]) -> str:
    """`` of process 7``, `` of processes 7, 8, 9, 10 and 3 more``."""
    if not pids:
        return ""
    more = len(pids) - MOST_PROCESSES
    shown = ", ".join(str(pid) for pid in pids[:MOST_PROCESSES])
    return f" of process{'es' if len(pids) > 1 else ''} {shown}{f' and {more} more' * (more > 0)}"
