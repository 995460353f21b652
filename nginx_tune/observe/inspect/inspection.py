"""The inspection of a host: live, live with a recording, or replayed from one.

A capture may contain the configuration files of the host's nginx, without their secrets.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from nginx_tune import __version__
from nginx_tune.conf.secrets import redact_configuration, redact_tree
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.facts import Facts, Nginx
from nginx_tune.documents.facts_storage import DiskProbe, SharedCurve, Volume
from nginx_tune.documents.inspection import Answer, Capture, Request
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.door import Gaps, Host, HostReadError, Missing, under
from nginx_tune.host.mounts import View, view_of
from nginx_tune.host.recording import RecordedHost, RecordingHost, redact, to_bytes
from nginx_tune.host.redaction import escaped, from_bytes
from nginx_tune.observe.inspect.disk_plan import curve_gaps
from nginx_tune.observe.inspect.facts import DATASET_BUDGET_SECONDS, gather_facts, seal_facts


def inspect_host(
    host: Host, request: Request, *, dataset_budget_seconds: float = DATASET_BUDGET_SECONDS
) -> Facts:
    """The facts of a host that answer a request."""
    return gather_facts(
        host,
        paths=request.paths,
        datasets=request.datasets,
        nginx_binary=request.nginx_binary,
        pid=request.pid,
        link_speeds=request.link_speeds,
        dataset_budget_seconds=dataset_budget_seconds,
        sample_ratio=request.sample_ratio,
        watch_seconds=request.watch_seconds,
    )


def record_host(
    host: Host,
    request: Request,
    *,
    dataset_budget_seconds: float = DATASET_BUDGET_SECONDS,
    with_config: bool = False,
) -> Capture:
    """The capture of an inspection with secrets redacted; configuration files only on request."""
    recording = RecordingHost(host)
    facts = inspect_host(recording, request, dataset_budget_seconds=dataset_budget_seconds)
    answers = dict(recording.answers)
    if with_config:
        answers |= read_configuration(host, facts.nginx)
    asked = _escaped(request)
    return redact(Capture(tool_version=__version__, request=asked, answers=answers))


def replay(capture: Capture, extra: Request | None = None) -> Facts:
    """The facts of the recorded inspection, and those that ``extra`` requests."""
    request = capture.request if extra is None else _joined(capture.request, extra)
    facts = inspect_host(RecordedHost(capture.answers), request)
    return with_disk_probes(facts, capture.disk_probes) if capture.disk_probes else facts


def _escaped(request: Request) -> Request:
    """The request with its texts escaped for JSON, as in the recorded questions."""
    return msgspec.structs.replace(
        request,
        paths=[escaped(path) for path in request.paths],
        datasets=[escaped(path) for path in request.datasets],
        nginx_binary=None if request.nginx_binary is None else escaped(request.nginx_binary),
    )


def _joined(first: Request, second: Request) -> Request:
    return msgspec.structs.replace(
        first,
        paths=list(dict.fromkeys([*first.paths, *second.paths])),
        datasets=list(dict.fromkeys([*first.datasets, *second.datasets])),
        nginx_binary=second.nginx_binary or first.nginx_binary,
        pid=second.pid or first.pid,
        link_speeds={**first.link_speeds, **second.link_speeds},
        watch_seconds=second.watch_seconds or first.watch_seconds,
    )


def with_volumes(facts: Facts, volumes: Mapping[str, Volume]) -> Facts:
    """The facts with the declared volumes of disks.

    Errors: UsageError for a disk that does not exist.
    """
    names = [disk.name for disk in facts.storage.disks]
    for name in volumes:
        if name not in names:
            raise UsageError(f"no disk '{name}'", hint=f"there are {', '.join(names) or 'none'}")
    disks = [
        msgspec.structs.replace(disk, volume=volumes.get(disk.name, disk.volume))
        for disk in facts.storage.disks
    ]
    storage = msgspec.structs.replace(facts.storage, disks=disks)
    return msgspec.structs.replace(facts, storage=storage)


def with_disk_probes(facts: Facts, probes: Sequence[DiskProbe]) -> Facts:
    """The facts with the measured curves of disks, and the reasons for missing ones."""
    gaps: Gaps = {unknown.path: unknown.reason for unknown in facts.unknown}
    disks = list(facts.storage.disks)
    index_of = {disk.name: index for index, disk in enumerate(disks)}
    shared = list(facts.storage.shared_curves)
    for probe in probes:
        for name in probe.disks:
            if name in index_of and (probe.reason or len(probe.disks) > 1):
                gaps[f"/storage/disks/{index_of[name]}/curve"] = probe.reason or (
                    f"measured as one: {'+'.join(probe.disks)}, in shared_curves"
                )
        if probe.curve is None:
            continue
        if len(probe.disks) > 1:
            gaps |= under(f"/storage/shared_curves/{len(shared)}/curve", curve_gaps(probe.curve))
            shared.append(SharedCurve(disks=probe.disks, curve=probe.curve))
        elif (index := index_of.get(probe.disks[0])) is not None:
            gaps.pop(f"/storage/disks/{index}/curve", None)
            gaps |= under(f"/storage/disks/{index}/curve", curve_gaps(probe.curve))
            disks[index] = msgspec.structs.replace(disks[index], curve=probe.curve)
    storage = msgspec.structs.replace(facts.storage, disks=disks, shared_curves=shared)
    return seal_facts(msgspec.structs.replace(facts, storage=storage), gaps)


def read_configuration(host: Host, nginx: Nginx) -> dict[str, Answer]:
    """The answers for the main file and its includes, without secrets.

    The files of an nginx in another mount namespace are read through its root, links included, and
    recorded under the paths that nginx uses.
    Errors: UndecidedError for another user's process, whose title would choose the files.
    """
    running = nginx.running
    path = (running and running.conf_path) or nginx.conf_path
    if path is None or not posixpath.isabs(path):
        return {}
    if running is None or not running.other_mount_namespace:
        if running is not None and not nginx.may_run:
            reasons = (
                candidate.reason for candidate in nginx.candidates if candidate.pid == running.pid
            )
            raise UndecidedError(
                f"the configuration of process {running.pid} is not read: its title names it, and "
                f"{next(reasons, '')}",
                hint="leave --with-config out",
            )
        recording = RecordingHost(host)
        return _redacted(recording.answers, redact_tree(read_tree(path, recording)))
    view = view_of(host, running.pid)
    if isinstance(view, Missing):
        raise UndecidedError(
            f"the files of process {running.pid} cannot be seen: {view.reason}",
            hint="leave --with-config out",
        )
    inside = _Inside(view, {})
    return _redacted(inside.answers, redact_tree(read_tree(path, inside)))


T = TypeVar("T")


class _Inside(NamedTuple):
    """Reads the files of a container by its own paths, and keeps each answer."""

    view: View
    answers: dict[str, Answer]

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file."""
        question = f"read {path}"
        data = self._asked(question, path, self.view.host.read_bytes)
        self.answers[escaped(question)] = Answer(value=from_bytes(data))
        return data

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory."""
        question = f"list {path}"
        names = self._asked(question, path, self.view.host.list_dir)
        self.answers[escaped(question)] = Answer(value=list(map(escaped, names)))
        return names

    def _asked(self, question: str, path: str, ask: Callable[[str], T]) -> T:
        try:
            return ask(self._outside(question, path))
        except HostReadError as error:
            self.answers[escaped(question)] = Answer(error=escaped(error.reason))
            raise

    def _outside(self, question: str, path: str) -> str:
        """The path by which this process reaches a file; links are resolved in the container."""
        real = self.view.real_path(path)
        if isinstance(real, Missing):
            raise HostReadError(question, real.reason)
        return self.view.outside(real)


def _redacted(answers: dict[str, Answer], files: dict[str, bytes]) -> dict[str, Answer]:
    return {question: _without(question, answer, files) for question, answer in answers.items()}


def _without(question: str, answer: Answer, redacted: dict[str, bytes]) -> Answer:
    if answer.error is not None or not question.startswith("read "):
        return answer
    data = redacted.get(question.removeprefix("read "))
    if data is None:  # not a file that could be parsed
        data = redact_configuration(to_bytes(answer.value))
    return Answer(value=from_bytes(data))
