"""Inspecting a host: live, while recording it, or from what was recorded."""

from __future__ import annotations

import msgspec

from nginx_tune import __version__
from nginx_tune.documents.capture import Capture, Request
from nginx_tune.documents.facts import Facts
from nginx_tune.host.door import Host
from nginx_tune.host.recording import RecordedHost, RecordingHost
from nginx_tune.host.redact import redact
from nginx_tune.host.redaction import escaped
from nginx_tune.nginx.configuration import read_configuration
from nginx_tune.observe.inspect.disk_facts import with_disk_probes
from nginx_tune.observe.inspect.facts import DATASET_BUDGET_SECONDS, gather_facts


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
    """The capture of an inspection, secrets redacted; configuration files only when asked for."""
    recording = RecordingHost(host)
    facts = inspect_host(recording, request, dataset_budget_seconds=dataset_budget_seconds)
    answers = dict(recording.answers)
    if with_config:
        answers |= read_configuration(host, facts.nginx)
    asked = _escaped(request)
    return redact(Capture(tool_version=__version__, request=asked, answers=answers))


def replay(capture: Capture, extra: Request | None = None) -> Facts:
    """The facts that the recorded inspection gave, and what ``extra`` asks besides."""
    request = capture.request if extra is None else _joined(capture.request, extra)
    facts = inspect_host(RecordedHost(capture.answers), request)
    return with_disk_probes(facts, capture.disk_probes) if capture.disk_probes else facts


def _escaped(request: Request) -> Request:
    """The request as JSON can hold it, with the names that the recorded questions have."""
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
