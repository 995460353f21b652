"""Which nginx a command is about, and which of them it may run: one answer for all commands.

Any process can give itself nginx's title and any directory can stand in PATH. So a running master
is taken only when it runs as root or as the caller and its executable is one that nobody else
could have written (``host/trust``); what it calls itself proves nothing. Of what is left the
one that reads the configuration that is meant is taken, else the first; the others are listed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Literal, NamedTuple

from nginx_tune.documents.facts import Nginx, NginxCandidate
from nginx_tune.documents.facts_nginx import IN_CONTAINER
from nginx_tune.errors import MissingToolError, UndecidedError, UsageError
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.nginx_names import NAMES
from nginx_tune.host.parse_nginx import parse_start_options
from nginx_tune.host.parse_process import parse_status
from nginx_tune.nginx.processes import Master, same_mounts

Source = Literal["named", "running", "installed"]


_READING = (True, None, False)
"""In this order masters are taken by whether they read what is meant."""


class Eligibility(NamedTuple):
    """Whether a running master may be taken, and its program run."""

    master: Master
    user: str | None
    """Its user id; null when it has several or none can be read."""
    refused: str
    """Why it is not taken unasked; empty when it may be."""
    may_run: bool
    """Whether its program may be run: ours to see, and nobody else's to write."""
    reads: bool | None = None
    """Whether its command line names the configuration that is meant; null when it names none."""


class Choice(NamedTuple):
    """The nginx that was chosen."""

    source: Source | None
    """Where its program comes from; null when there is none."""
    program: str | Missing
    """What to run: a path, or ``/proc/PID/exe``, the very file that a master runs."""
    binary: str | Missing
    """Where that file lies."""
    master: Master | None
    may_run: bool
    candidates: list[NginxCandidate]


def choose_nginx(
    host: Host,
    masters: Sequence[Master],
    *,
    binary: str | None = None,
    pid: int | None = None,
    conf_path: str | None = None,
    to_run: bool = False,
) -> Choice:
    """The named program, else the one that runs, else the one that is installed.

    The master is the one with ``pid``, whoever's it is; without one the first that may be taken,
    those that run the named program first, then those that say that they read ``conf_path``,
    those in a container last. ``to_run`` takes only what may be run.
    Errors: UsageError for a pid that is no nginx master.
    """
    standings = [
        _standing(host, master)._replace(reads=_reads(host, master, conf_path))
        for master in masters
    ]
    chosen = _chosen(standings, binary, pid)
    if to_run and chosen is not None and not chosen.may_run:
        chosen = None
    if binary is not None:
        found = attempt(host.find_program, binary)
        named = NginxCandidate(
            binary=binary, source="named", chosen=True, reason="--nginx names it"
        )
        return Choice(
            "named",
            binary,
            binary if isinstance(found, Missing) else found,
            None if chosen is None else chosen.master,
            True,
            [named, *_running(standings, chosen, is_program=False)],
        )
    if chosen is not None and not isinstance(chosen.master.binary, Missing):
        return Choice(
            "running",
            f"/proc/{chosen.master.pid}/exe",
            chosen.master.binary,
            chosen.master,
            chosen.may_run,
            [*_running(standings, chosen, is_program=True), *_installed(host, chosen)],
        )
    installed = _installed(host, None)
    first = next((one for one in installed if one.chosen), None)
    missing = Missing("no nginx in a system directory; name it with --nginx")
    return Choice(
        None if first is None else "installed",
        missing if first is None else first.binary,
        missing if first is None else first.binary,
        None if chosen is None else chosen.master,
        True,
        [*_running(standings, chosen, is_program=False), *installed],
    )


def _standing(host: Host, master: Master) -> Eligibility:
    user = _user(host, str(master.pid))
    is_here = same_mounts(host, master.pid) is True
    if isinstance(master.binary, Missing):
        return Eligibility(
            master, user, f"its program cannot be seen: {master.binary.reason}", False
        )
    if user is None:
        return Eligibility(master, user, "whose it is cannot be seen", False)
    allowed = {"0", _user(host, "self"), _caller(host)}
    if user not in allowed:
        return Eligibility(
            master, user, f"it runs as user {user}, who is neither root nor the caller", False
        )
    if not is_here:  # its file lies in a container: it is read, never run
        return Eligibility(master, user, "", False)
    why = attempt(host.distrust, f"/proc/{master.pid}/exe")
    reason = why.reason if isinstance(why, Missing) else why
    return Eligibility(master, user, reason, not reason)


def _user(host: Host, process: str) -> str | None:
    """The user of a process: real, effective, saved and file system's all the same."""
    status = attempt(host.read_text, f"/proc/{process}/status")
    words = [] if isinstance(status, Missing) else parse_status(status).get("Uid", "").split()
    return words[0] if len(set(words)) == 1 else None


def _caller(host: Host) -> str | None:
    caller = attempt(host.caller)
    return None if isinstance(caller, Missing) else str(caller)


def _chosen(
    standings: Sequence[Eligibility], binary: str | None, pid: int | None
) -> Eligibility | None:
    if pid is not None:
        named = next((one for one in standings if one.master.pid == pid), None)
        if named is None:
            raise UsageError(f"process {pid} is no nginx master that can be seen")
        return named
    taken = [one for one in standings if not one.refused]
    order = sorted(
        taken,
        key=lambda one: (
            not one.may_run,
            one.master.binary != binary,
            _READING.index(one.reads),
            one.user != "0",
        ),
    )
    return order[0] if order else None


def _reads(host: Host, master: Master, conf_path: str | None) -> bool | None:
    options = parse_start_options(master.arguments)
    if conf_path is None or options.conf_path is None or same_mounts(host, master.pid) is not True:
        return None
    own = posixpath.join(options.prefix or "", options.conf_path)
    if not posixpath.isabs(own):
        return None
    return (_real(host, own) or own) == (_real(host, conf_path) or conf_path)


def _running(
    standings: Sequence[Eligibility], chosen: Eligibility | None, *, is_program: bool
) -> list[NginxCandidate]:
    """The masters; ``is_program`` when the chosen one's program is the nginx that is meant."""
    return [
        NginxCandidate(
            binary="" if isinstance(one.master.binary, Missing) else one.master.binary,
            source="running",
            pid=one.master.pid,
            chosen=one is chosen and is_program,
            reason=_why(one, is_chosen=one is chosen),
        )
        for one in standings
    ]


def _why(one: Eligibility, *, is_chosen: bool) -> str:
    if not is_chosen:
        reason = "another one came first" if one.may_run else f"it runs {IN_CONTAINER}"
        return one.refused or reason
    if one.refused:
        return f"--pid names it, but its program is only read: {one.refused}"
    does = "it reads this configuration" if one.reads else "it runs"
    return does if one.may_run else f"{does} {IN_CONTAINER}: its program is only read"


def _installed(host: Host, chosen: Eligibility | None) -> list[NginxCandidate]:
    """Programs that are installed, but for the one that the chosen master runs."""
    found: list[NginxCandidate] = []
    known = set() if chosen is None else {chosen.master.binary, _real(host, chosen.master.binary)}
    for name in NAMES:
        path = attempt(host.find_program, name)
        if isinstance(path, Missing):
            if "not run as root: " in path.reason:
                reason = path.reason.partition("not run as root: ")[2]
                found.append(NginxCandidate(binary=name, source="installed", reason=reason))
            continue
        if path in known or _real(host, path) in known:
            continue
        known |= {path, _real(host, path)}
        is_first = chosen is None and not any(one.chosen for one in found)
        reason = "it is installed" if is_first else "another one came first"
        found.append(
            NginxCandidate(binary=path, source="installed", chosen=is_first, reason=reason)
        )
    return found


def _real(host: Host, path: str | Missing) -> str:
    real = path if isinstance(path, Missing) else attempt(host.real_path, path)
    return "" if isinstance(real, Missing) else real


def choice_sentence(candidates: Sequence[NginxCandidate]) -> str:
    """The program that was taken, and why; empty when there is none."""
    chosen = next((one for one in candidates if one.chosen), None)
    if chosen is None:
        return ""
    of = f" of process {chosen.pid}" if chosen.pid else ""
    return f"nginx is {chosen.binary}{of}: {chosen.reason}"


def runnable_program(nginx: Nginx) -> str:
    """The program of the nginx that was chosen.

    Errors: MissingToolError when there is none, UndecidedError when it may only be read, each
            with the reason why another one was not taken.
    """
    if nginx.binary is not None and nginx.may_run:
        return nginx.binary
    chosen = next((one for one in nginx.candidates if one.chosen), None)
    if chosen is not None:
        raise UndecidedError(
            f"{chosen.binary} is not run: {chosen.reason}", hint="name one with --nginx"
        )
    refused = next((f"{one.binary}: {one.reason}" for one in nginx.candidates), "")
    raise MissingToolError(
        f"no nginx that may be run is here: {refused}" if refused else "nginx is not installed",
        hint="apt-get install nginx, or name one with --nginx",
    )
