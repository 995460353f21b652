"""One partial result for each log, stored under a hash of its inputs.

A repeated call reads only the logs that have no partial result yet. So it continues an interrupted
run, and of a growing set of logs it reads only the new ones. The sum is the same as that of one run
over all logs, to the last byte.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.base import encode
from nginx_tune.documents.learning import LearnPlan, LogCounts
from nginx_tune.documents.progress import part_of
from nginx_tune.documents.units import plural
from nginx_tune.errors import NginxTuneError, UndecidedError, UsageError
from nginx_tune.observe.access_logs import (
    REASONS,
    LogFiles,
    check_readable,
    learnt_of,
    read_frames,
    watched_frames,
)
from nginx_tune.observe.log_configuration import Places
from nginx_tune.observe.log_partials import (
    Merged,
    PartialResult,
    merge_results,
    pack_partial,
    partial_of,
    read_result,
)
from nginx_tune.observe.object_storage import Folder, StoredLog, find_log, is_url

_NAME = b"nginx-tune part"
_SUFFIX = ".partial"
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?/?$")
_SHOWN_LOGS = 3
"""Maximum number of logs whose first refused lines are reported."""


class LearnJob(NamedTuple):
    """Everything that a partial result depends on, except the log itself.

    The plan contains the key for hashes.
    """

    plan: LearnPlan
    places: Places | None
    host: str | None
    folder: str
    """The path or URL of the folder of partial results."""
    version: str = __version__


class LogOutcome(NamedTuple):
    """The outcome of reading a log, apart from its partial result."""

    unread: str = ""
    """The reason why there is no partial result."""
    broken: str = ""
    """The reason why the partial result covers only the beginning of the log."""
    refused: Sequence[str] = ()
    """The places of the first lines that were left out."""


def partial_name(job: LearnJob, log: StoredLog) -> str:
    """The name of a log's partial result; it changes with the log's content, plan and version.

    It is a hash with the job's key, so it does not reveal the path of the log.
    """
    plan = encode(msgspec.structs.replace(job.plan, key=""))
    given = [job.version, job.host, log.name, log.version]
    key = bytes.fromhex(job.plan.key)
    digest = hashlib.blake2b(plan, digest_size=16, key=key, person=_NAME)
    digest.update(msgspec.json.encode(given))
    return digest.hexdigest() + _SUFFIX


def keep_partial(
    job: LearnJob, log: StoredLog, on_progress: Callable[[str], None] = lambda _: None
) -> LogOutcome:
    """Read a log and store its partial result. A log that cannot be read is not an error."""
    try:
        if find_log(log.name) != log:
            return LogOutcome(unread=f"{log.name}: has changed since this run began")
        files = LogFiles([log], host=job.host)
        learnt = learnt_of(
            read_frames(watched_frames(files, on_progress), job.plan),
            broken=files.broken,
            logs=files.logs,
        )
        if files.has_failed:
            return LogOutcome(unread=files.broken[0])
        if job.places is not None:
            learnt = learnt._replace(places=job.places.find(learnt.places))
        packed = pack_partial(partial_of(learnt, job.plan))
        Folder(job.folder).write(partial_name(job, log), packed)
    except NginxTuneError as error:
        return LogOutcome(unread=error.message)
    return LogOutcome(broken="".join(learnt.broken), refused=learnt.refused)


class KeptLogs:
    """The logs of a job, the names of their partial results, and what to report about them."""

    def __init__(
        self,
        job: LearnJob,
        logs: Sequence[StoredLog],
        *,
        tell: Callable[[str], None],
        on_progress: Callable[[str], None],
    ) -> None:
        """Errors: UsageError for a log that can be read only once or whose version is unknown."""
        for log in logs:
            if not log.version:
                if log.name != "-" and not is_url(log.name):
                    check_readable(log.name)
                raise UsageError(
                    f"{log.name}: no time of change is known, so no partial result can be kept",
                    hint="learn it without --partials",
                )
        self.job = job
        self.logs = {partial_name(job, log): log for log in logs}
        if len(self.logs) < len(logs):
            raise UsageError("a log is given twice, which would count its requests twice")
        self.folder = Folder(job.folder)
        self.tell = tell
        self.on_progress = on_progress
        kept = self.folder.names()
        self.missing = [name for name in self.logs if name not in kept]
        self._unread: list[str] = []
        self._broken: dict[str, str] = {}
        self._refusing = 0

    def note(self, name: str, outcome: LogOutcome) -> None:
        """Remember the outcome of a log for the end, and report lines that were left out."""
        if outcome.unread:
            self._unread.append(outcome.unread)
        if outcome.broken:
            self._broken[self.logs[name].name] = outcome.broken
        if outcome.refused and self._refusing < _SHOWN_LOGS:
            for refused in outcome.refused:
                self.tell(f"left out {refused}")
        self._refusing += bool(outcome.refused)

    def refuse_unread(self) -> None:
        """Check that every log was read, since the sum needs all logs. Errors: UndecidedError."""
        for reason in self._unread:
            self.tell(reason)
        if self._unread:
            raise UndecidedError(
                f"{len(self._unread)} of {plural(len(self.logs), 'log')} could not be read, so "
                "there is no sum; the partial results of the others are kept",
                hint="run the same command again to read the rest",
            )

    def result(self, name: str) -> PartialResult:
        """A stored partial result, labelled with the name of its log."""
        return read_result(self.folder.name_of(name))._replace(name=self.logs[name].name)

    def sum_of(self, results: Iterator[PartialResult]) -> Merged:
        """The sum of all partial results, with the known reasons why logs are broken.

        Errors: UsageError when no line is in the format.
        """
        merged = merge_results(results)
        counts = merged.learnt.tally.counts
        if not counts.requests:
            raise UsageError(_no_request(counts, self.job.plan, len(self.logs)))
        unknown = "could not be read to the end"
        broken = [self._broken.get(name, f"{name}: {unknown}") for name in merged.result.broken]
        return merged._replace(learnt=merged.learnt._replace(broken=broken))


def learn_kept(kept: KeptLogs) -> Merged:
    """The sum of all logs; those without a partial result are read now.

    Errors: UndecidedError after the last log if one could not be read; those of ``merge_results``.
    """
    total = sum(log.size or 0 for log in kept.logs.values())
    missing = set(kept.missing)

    def results() -> Iterator[PartialResult]:
        done = 0
        for name, log in kept.logs.items():
            outcome = LogOutcome()
            if name in missing:
                outcome = keep_partial(kept.job, log, part_of(kept.on_progress, done, total))
                kept.note(name, outcome)
            done += log.size or 0
            if not outcome.unread:
                yield kept.result(name)
        kept.refuse_unread()

    return kept.sum_of(results())


def _no_request(counts: LogCounts, plan: LearnPlan, logs: int) -> str:
    if not counts.lines:
        return f"{plural(logs, 'log')}: empty"
    reason = max(counts.refused, key=counts.refused.__getitem__)
    return (
        f"{plural(logs, 'log')}: none of {counts.lines:,} lines is in the log format "
        f"'{plan.format.name}' ({REASONS.get(reason, reason)})"
    )


def refuse_plain(address: str) -> None:
    """Refuse unencrypted connections to another host. Errors: UsageError."""
    scheme, _, place = address.rpartition("://")
    if scheme in {"tls", "wss", "inproc"} or _LOOPBACK.match(place):
        return
    raise UsageError(
        f"{address}: connections there are not encrypted, and the key of the hashes goes through "
        "them; anyone who reaches the port can run programs on its workers",
        hint="tls:// with certificates, or --allow-unencrypted where the network is your own",
    )
