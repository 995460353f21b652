"""Reading logs with the workers of a Dask cluster, which also add up the partial results.

A task reads one log or computes one sum; its name is a hash of its inputs. Its job, which contains
the key for hashes, is in a plugin of its worker. So the key is in no task graph: it goes with the
plugin from this process through the scheduler to each worker, including those that join later.

This module imports distributed (``nginx-tune[dask]``), so import it only on request.
"""

import asyncio
import contextlib
import hashlib
import logging
import secrets
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import dask
from distributed import Client, LocalCluster, WorkerPlugin, as_completed, get_worker

from nginx_tune import __version__
from nginx_tune.documents.progress import Step
from nginx_tune.errors import NginxTuneError, UndecidedError, UsageError
from nginx_tune.observe.kept_partials import (
    KeptLogs,
    LearnJob,
    LogOutcome,
    keep_partial,
    refuse_plain,
)
from nginx_tune.observe.log_partials import (
    Merged,
    PartialResult,
    merge_results,
    pack_partial,
    read_result,
    unpack_partial,
)
from nginx_tune.observe.object_storage import StoredLog

_CONNECT_SECONDS = 10
_WORKER_SECONDS = 30
"""The time to wait for a scheduler to have a worker."""
_WIDTH = 8
"""Maximum number of partial results that one task adds up, and that remain for this process."""


class _JobPlugin(WorkerPlugin):  # type: ignore[misc]  # its types are not ours to check
    """Brings the job to each worker."""

    def __init__(self, name: str, job: LearnJob) -> None:
        self.name = name
        self.job = job


class _Packed(NamedTuple):
    """A sum, serialised to be sent between workers."""

    data: bytes
    owners: Mapping[str, str]
    broken: Sequence[str]

    def result(self) -> PartialResult:
        return PartialResult("", unpack_partial(self.data, "a sum"), self.owners, self.broken)


def _version() -> str:
    return __version__


def _job(plugin: str) -> LearnJob:
    job: LearnJob = get_worker().plugins[plugin].job
    return job


def _read(plugin: str, log: StoredLog) -> LogOutcome:
    job = _job(plugin)
    if job.version != __version__:  # a worker that joined after the check
        return LogOutcome(unread=f"{log.name}: {_other_version(get_worker().address, __version__)}")
    return keep_partial(job, log)


def _add_kept(files: Sequence[tuple[str, str]]) -> _Packed:
    """The sum of files, each with the name of its log."""
    return _packed(merge_results(read_result(file)._replace(name=log) for file, log in files))


def _add(sums: Sequence[_Packed]) -> _Packed:
    return _packed(merge_results(packed.result() for packed in sums))


def _packed(merged: Merged) -> _Packed:
    result = merged.result
    return _Packed(pack_partial(result.partial), dict(result.owners), list(result.broken))


def learn_by_dask(kept: KeptLogs, address: str | None, *, is_plain_allowed: bool = False) -> Merged:
    """The sum of all logs; the workers read the logs that have no partial result.

    ``address`` is the scheduler's; None for a temporary cluster of threads in this process.
    Errors: UsageError for workers of another version, and for unencrypted connections to other
    hosts; UndecidedError if no worker can be reached, or the scheduler is lost; also those of
    ``kept``.
    """
    with _quiet(), _client(address) as client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_SECONDS)
            _check_workers(client.run(_version, on_error="return"), is_plain_allowed)
            with _plugin(client, kept.job) as plugin:
                _read_missing(client, plugin, kept)
                kept.refuse_unread()
                return kept.sum_of(_sums(client, kept))
        except NginxTuneError:
            raise
        except (OSError, asyncio.TimeoutError, CancelledError) as error:
            if client.status == "running" and isinstance(error, asyncio.TimeoutError):
                raise UndecidedError(
                    f"{address}: the scheduler has no worker", hint="start a worker"
                ) from None
            raise UndecidedError(
                f"{address}: the scheduler was lost; the partial results so far are kept in "
                f"{kept.job.folder}",
                hint="run the same command again to read the rest",
            ) from None


def _read_missing(client: Any, plugin: str, kept: KeptLogs) -> None:
    """Have the workers read each missing log, even if others fail."""
    logs = [kept.logs[name] for name in kept.missing]
    keys = [f"learn-{name.partition('.')[0]}" for name in kept.missing]
    futures = client.map(_read, [plugin] * len(logs), logs, key=keys, pure=False)
    names = dict(zip((future.key for future in futures), kept.missing, strict=True))
    done = sum(log.size or 0 for log in kept.logs.values()) - sum(log.size or 0 for log in logs)
    total = done + sum(log.size or 0 for log in logs)
    for count, future in enumerate(as_completed(futures), 1):
        name = names[future.key]
        if future.status == "error":
            reason = str(future.exception()).splitlines()[0]
            outcome = LogOutcome(unread=f"{kept.logs[name].name}: not read by a worker: {reason}")
        else:
            outcome = future.result()
        kept.note(name, outcome)
        done += kept.logs[name].size or 0
        text = f"{count} of {len(logs)} logs read"
        kept.on_progress(Step(text, done=done, total=total, unit="byte", live=True))


def _sums(client: Any, kept: KeptLogs) -> Iterator[PartialResult]:
    """At most ``_WIDTH`` sums, which together cover all partial results."""
    if len(kept.logs) <= _WIDTH:
        yield from map(kept.result, kept.logs)
        return
    files = [(kept.folder.name_of(name), log.name) for name, log in kept.logs.items()]
    level = [
        client.submit(_add_kept, group, key=_sum_key([file for file, _ in group]))
        for group in _groups(files)
    ]
    while len(level) > _WIDTH:
        level = [
            client.submit(_add, group, key=_sum_key([future.key for future in group]))
            for group in _groups(level)
        ]
    for future in level:
        yield future.result().result()


def _groups(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[at : at + _WIDTH] for at in range(0, len(items), _WIDTH))


def _sum_key(parts: Sequence[str]) -> str:
    return f"sum-{hashlib.blake2b('/'.join(parts).encode(), digest_size=16).hexdigest()}"


def _check_workers(versions: Mapping[str, Any], is_plain_allowed: bool) -> None:
    """Check that the workers can do the job and use encrypted connections. Errors: UsageError."""
    for worker, version in sorted(versions.items()):
        if not isinstance(version, str):
            raise UsageError(f"worker {worker}: cannot run nginx-tune: {version}")
        if version != __version__:
            raise UsageError(
                _other_version(f"worker {worker}", version),
                hint=f"install nginx-tune {__version__} there",
            )
        if not is_plain_allowed:
            refuse_plain(worker)


def _other_version(worker: str, version: str) -> str:
    return f"{worker} has nginx-tune {version}, this is {__version__}: they may count differently"


@contextlib.contextmanager
def _plugin(client: Any, job: LearnJob) -> Iterator[str]:
    name = f"nginx-tune-{secrets.token_hex(8)}"
    client.register_plugin(_JobPlugin(name, job), name=name)
    try:
        yield name
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            client.unregister_worker_plugin(name)


@contextlib.contextmanager
def _client(address: str | None) -> Iterator[Any]:
    if address is None:
        # No web page for other users of this host, and no scratch files where they can plant some.
        routes: dict[str, Any] = {
            f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")
        }
        with (
            tempfile.TemporaryDirectory() as scratch,
            dask.config.set({**routes, "temporary-directory": scratch}),
            LocalCluster(
                processes=False,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except Exception as error:  # noqa: BLE001  # each transport has its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UndecidedError(
            f"{address}: cannot reach the scheduler: {reason}",
            hint="certificates are named in Dask's configuration, distributed.comm.tls"
            if address.startswith("tls")
            else "",
        ) from None
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's messages, since this module reports what went wrong."""
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
