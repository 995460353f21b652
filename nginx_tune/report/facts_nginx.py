"""The nginx of a host on the screen: the choice with its reason, the processes and listeners."""

from nginx_tune.documents.facts import IN_CONTAINER, Facts, Nginx, Running
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.documents.units import plural
from nginx_tune.report.text import plain

MOST_LISTENERS = 12
MOST_INSTANCES = 8


def nginx_lines(nginx: Nginx) -> list[str]:
    """The program, its build, and its running processes."""
    if nginx.product is None:
        lines = ["not found" if nginx.binary is None else nginx.binary]
    else:
        base = "" if nginx.version == nginx.nginx_version else f" on nginx {nginx.nginx_version}"
        threads = "with threads" if "--with-threads" in nginx.flags else "without threads"
        lines = [f"{nginx.product} {nginx.version}{base}, {threads} ({nginx.binary or '?'})"]
    lines += choice_lines(nginx) if nginx.candidates else []
    libraries = [" ".join(filter(None, (nginx.libc, nginx.libc_version))), nginx.openssl or ""]
    if any(libraries):
        lines[0] += f"; {', '.join(filter(None, libraries))}"
    running = nginx.running
    if running is None:
        where = f"; its pid file is {nginx.pid_path}" if nginx.pid_path else ""
        return [*lines, f"not running{where}", *_instances(nginx)]
    limits = sorted({str(worker.nofile_soft) for worker in running.workers})
    others = f", {plural(len(running.other_masters), 'other master')}"
    lines.append(
        f"running: master {running.pid}, {plural(len(running.workers), 'worker')}, "
        f"open files {'/'.join(limits) or '?'}, {running.conf_path or 'configuration not known'}"
        + (others if running.other_masters else "")
    )
    notes = _notes(running)
    lines += ["; ".join(notes)] if notes else []
    return [*lines, *_instances(nginx)]


def _instances(nginx: Nginx) -> list[str]:
    """The masters other than the chosen one."""
    meant = nginx.running.pid if nginx.running else None
    others = [instance for instance in nginx.instances if instance.pid != meant]
    lines = [
        f"also: master {instance.pid}, {plural(instance.workers, 'worker')}, "
        f"{instance.binary or 'program not known'}"
        + (f" -c {instance.conf_path}" if instance.conf_path else "")
        + (", in a container" if instance.other_mount_namespace else "")
        for instance in others[:MOST_INSTANCES]
    ]
    more = len(others) - len(lines)
    return [*lines, *([f"and {more} more: -f json"] if more else [])]


def _notes(running: Running) -> list[str]:
    """Notes on what is unusual about a running nginx."""
    notes = []
    if running.other_mount_namespace:
        notes.append("sees other files than nginx-tune: a container or a chroot")
    if running.other_network_namespace:
        notes.append("in a separate network namespace")
    if running.reloaded:
        notes.append("reloaded since its start")
    if (running.generations or 0) > 1:
        notes.append(f"workers of {running.generations} generations")
    notes += _worker_notes(running)
    if running.leaving_workers:
        notes.append(f"{plural(running.leaving_workers, 'old worker')} still shutting down")
    if running.modules:
        notes.append(f"{plural(len(running.modules), 'dynamic module')} loaded")
    if running.ktls_connections is not None:
        notes.append(f"{plural(running.ktls_connections, 'connection')} with kernel TLS")
    return notes


def _worker_notes(running: Running) -> list[str]:
    notes = []
    users = sorted({worker.user_id for worker in running.workers if worker.user_id is not None})
    if users == [0]:
        notes.append("workers run as root")
    held = sorted(
        {capability for worker in running.workers for capability in worker.capabilities or ()}
    )
    if held and users != [0]:
        notes.append(f"workers keep {', '.join(held)}")
    if any(w.cpus_allowed not in (None, running.cpus_allowed) for w in running.workers):
        notes.append("workers pinned to CPUs")
    return notes


def listener_rows(facts: Facts) -> tuple[list[tuple[str, ...]], int]:
    """The listeners, those of nginx first, and the number of others."""
    listeners = sorted(
        facts.listeners,
        key=lambda listener: (not listener.of_nginx, listener.port, listener.address),
    )
    shown = [_listener(listener) for listener in listeners[:MOST_LISTENERS]]
    return shown, len(listeners) - len(shown)


def _listener(listener: Listener) -> tuple[str, ...]:
    address = f"[{listener.address}]" if ":" in listener.address else listener.address
    sockets = f"{listener.sockets} sockets" if listener.sockets > 1 else ""
    return (
        f"{address}:{listener.port}",
        "nginx" if listener.of_nginx else "",
        sockets,
        f"backlog {_count(listener.backlog)}",
        f"{_count(listener.accept_queue)} waiting"
        + (f", {listener.longest_accept_queue} in one" if listener.sockets > 1 else ""),
        f"{_count(listener.drops)} dropped",
    )


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


MOST_OTHERS = 8
MOST_PROCESSES = 4
"""Maximum number of process ids in a line, since a host with containers may run a program many
times."""


def choice_lines(nginx: Nginx) -> list[str]:
    """The chosen nginx, and a line with the reason against each other candidate."""
    others: dict[tuple[str, str], list[int]] = {}
    for candidate in nginx.candidates:
        if not candidate.chosen:
            pids = others.setdefault((candidate.binary or "the program", candidate.reason), [])
            pids += [candidate.pid] if candidate.pid else []
    lines = [plain(nginx.choice or "no nginx is chosen; name one with --nginx")]
    for (binary, reason), pids in [*others.items()][:MOST_OTHERS]:
        lines.append(plain(f"not used: {binary}{_processes(pids)}: {reason}"))
    more = len(others) - MOST_OTHERS
    return [*lines, f"and {more} more: nginx-tune inspect -f json"] if more > 0 else lines


def is_doubtful(nginx: Nginx) -> bool:
    """True if no nginx was named and there were several to choose from.

    A master in a container does not count if the host itself has one.
    """
    chosen = next((candidate for candidate in nginx.candidates if candidate.chosen), None)
    if chosen is not None and chosen.source == "named":
        return False
    is_of_host = chosen is not None and IN_CONTAINER not in chosen.reason
    return any(
        not candidate.chosen and not (is_of_host and IN_CONTAINER in candidate.reason)
        for candidate in nginx.candidates
    )


def _processes(pids: list[int]) -> str:
    """`` of process 7``, `` of processes 7, 8, 9, 10 and 3 more``."""
    if not pids:
        return ""
    more = len(pids) - MOST_PROCESSES
    shown = ", ".join(str(pid) for pid in pids[:MOST_PROCESSES])
    return f" of process{'es' if len(pids) > 1 else ''} {shown}{f' and {more} more' * (more > 0)}"
