"""A lab, controlled from outside of the sandbox: open it, make runs, list and clean up labs."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote_from_bytes

import msgspec

from nginx_tune.documents.facts import Facts
from nginx_tune.documents.lab import KeptImage, Lab, LabDisk, LabRun, Labs
from nginx_tune.documents.loadplan import LoadClass, LoadPlan, Tls
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.rehearsal import RehearsedReload
from nginx_tune.documents.site import CacheBounds, Site, SiteTls, Upstream
from nginx_tune.errors import ConfigurationError, MissingPermissionError, UndecidedError
from nginx_tune.experiment.operations import (
    ENVIRONMENT,
    FACTS,
    JOIN,
    LAID_TRIAL,
    OPEN_LAB,
    REHEARSE,
    RUN,
    SURVEY,
    EnvironmentRequest,
    FactsRequest,
    JoinRequest,
    LaidTrialRequest,
    MadeEnvironment,
    OpenLabRequest,
    Question,
    RehearseRequest,
    Response,
    RunRequest,
    SurveyRequest,
    Tried,
    Variant,
)
from nginx_tune.experiment.view import emulate
from nginx_tune.measure.load.classes import ServedFile
from nginx_tune.nginx.lab.building import find_missing
from nginx_tune.nginx.lab.cgroups import why_no_disk_limits
from nginx_tune.nginx.lab.check import is_below
from nginx_tune.nginx.lab.disk_models import is_limited, settle_kinds
from nginx_tune.nginx.lab.disks import lift_dirty_limit
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.images import CACHE_BYTES, Cached, list_images, remove_image
from nginx_tune.nginx.lab.keeper import Leftover, clean_dead, find_labs
from nginx_tune.nginx.lab.network import differing, read_tcp
from nginx_tune.nginx.lab.operation import LOOPBACK, Outgoing, Placement
from nginx_tune.nginx.lab.sandbox import Sandbox, bound
from nginx_tune.nginx.subject import refuse_foreign_code
from nginx_tune.observe.tracefs import sweep_tracing

ORIGIN = "origin"
"""The key of the origin's objects in ``Session.files``; their paths are URLs."""


class Session:
    """An open lab with its limits in force.

    ``notes``: disks whose kind differs from the request, with the reason, and differences in TCP
    settings.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        lab: Lab,
        *,
        binary: str,
        covers: Sequence[str],
        overlays: Sequence[str] = (),
        made: Sequence[str] = (),
        view: HostNeeds | None = None,
    ) -> None:
        refuse_foreign_code(binary, [])
        self._sandbox = sandbox
        self._binary = binary
        limits = (lab.memory_bytes, lab.quota_cpus)
        needs_root = bool(lab.disks) or any(limit is not None for limit in limits)
        if needs_root and not sandbox.root:
            raise MissingPermissionError(
                f"the lab '{lab.name}' limits memory or disks, which needs root",
                hint="run it with sudo, or without --lab",
            )
        lab, self.notes = settle_kinds(
            lab, no_models=find_missing(), no_limits=why_no_disk_limits()
        )
        self.lab = lab
        opened = sandbox.ask(
            OPEN_LAB,
            OpenLabRequest(
                lab=lab,
                covers=list(covers),
                overlays=list(overlays),
                made=list(made),
                view=view or HostNeeds(),
            ),
        )
        self.files = {
            disk: [ServedFile(path, size) for path, size in listing]
            for disk, listing in opened.files.items()
        }
        self._join_files, self._memory_cgroup = self._limit(opened.devices)
        self.placement = opened.placement
        self.tcp = opened.tcp
        target, where = (lab.tcp, "the target") if lab.tcp else (read_tcp(), "this host")
        self.notes += differing(opened.tcp, target, where)
        if self.placement.objects:
            objects = self.placement.objects.items()
            self.files[ORIGIN] = [ServedFile(path, size) for path, size in objects]
        nginx_cpus, self.probe_cpus = split_cpus(
            sorted(os.sched_getaffinity(0)), separate=lab.separate_cpus
        )
        self.nginx_cpus = nginx_cpus[: lab.cpus]

    def _limit(self, devices: dict[str, str]) -> tuple[list[str], str | None]:
        group = self._sandbox.group()
        bound(group, self._sandbox)
        if self.lab.memory_bytes is not None:
            group.limit_memory(self.lab.memory_bytes)
        if self.lab.quota_cpus is not None:
            group.limit_cpu(self.lab.quota_cpus)
        for disk in self.lab.disks:
            if is_limited(disk):
                group.limit_reads(
                    devices[disk.name],
                    bytes_per_second=disk.bytes_per_second,
                    reads_per_second=disk.reads_per_second,
                )
            lift_dirty_limit(devices[disk.name])  # a killed command may have left one
            if disk.dirty_bytes is not None:
                self._sandbox.limit_dirty(devices[disk.name], disk.dirty_bytes)
        files = [str(file) for file in group.join_files()]
        self._sandbox.ask(JOIN, JoinRequest(files=files))
        memory = group.directory("memory") if self.lab.memory_bytes is not None else None
        return files, str(memory) if memory else None

    def facts(self, paths: Sequence[str]) -> Facts:
        """The facts of the emulated host, with ``paths`` as datasets."""
        request = FactsRequest(
            paths=list(paths), binary=self._binary, memory_cgroup=self._memory_cgroup
        )
        facts = self._sandbox.ask(FACTS, request)
        return emulate(facts, self.lab, cpus=len(self.nginx_cpus))

    def make_environment(
        self,
        addresses: Sequence[str],
        variants: Sequence[Variant],
        *,
        shown: Mapping[str, Mapping[str, bytes]],
        outgoing: Sequence[Outgoing],
        sockets: Sequence[str],
        echoes: bool = False,
    ) -> MadeEnvironment:
        """Make what the variants need around them: addresses of the host, names, other servers.

        ``shown``: by variant, the files that it sees with other bytes. ``sockets``: the unix
        sockets that the variants listen on. ``echoes``: true for stubs that accept upgrades and
        echo.
        """
        request = EnvironmentRequest(
            binary=self._binary,
            addresses=list(addresses),
            commands={v.name: _test_command(self._program(v), v) for v in variants},
            shown={variant: dict(files) for variant, files in shown.items()},
            outgoing=list(outgoing),
            cpus=self.probe_cpus,
            sockets=list(sockets),
            echoes=echoes,
        )
        return self._sandbox.ask(ENVIRONMENT, request)

    def _program(self, variant: Variant) -> str:
        return variant.conduct.binary or self._binary

    def survey(self, variant: Variant, questions: Sequence[Question]) -> list[Response]:
        """The answers of a variant to single requests, before anything is measured."""
        request = SurveyRequest(
            binary=self._program(variant),
            variant=variant,
            questions=list(questions),
            memory_bytes=self.lab.memory_bytes,
        )
        with _naming(variant):
            return self._sandbox.ask(SURVEY, request)

    def place(self, site: Site) -> Site:
        """A site with the address, certificate, origin and cache of the lab."""
        return place_site(site, self.lab, self.placement)

    def try_laid(self, variant: Variant, program: str) -> Tried:
        """The result of a program's ``nginx -t`` on a variant, with the files that it sees."""
        request = LaidTrialRequest(argv=_test_command(program, variant), variant=variant.name)
        return self._sandbox.ask(LAID_TRIAL, request)

    def rehearse(self, request: RehearseRequest) -> list[RehearsedReload]:
        """Change a running nginx under load."""
        plan = msgspec.structs.replace(request.plan, cpus=self.probe_cpus)
        request = msgspec.structs.replace(
            request, plan=plan, join_files=self._join_files, nginx_cpus=self.nginx_cpus
        )
        return self._sandbox.ask(REHEARSE, request)

    def run(self, variant: Variant, number: int, plan: LoadPlan) -> Measurement:
        """Make one run."""
        drain = variant.conduct.drain_seconds
        plan = msgspec.structs.replace(
            plan,
            drain_seconds=plan.drain_seconds if drain is None else drain,
            cpus=self.probe_cpus,
            realtime=self.probe_cpus != self.nginx_cpus,
        )
        request = RunRequest(
            variant=variant,
            number=number,
            binary=self._program(variant),
            plan=place_plan(plan, self.placement, cleartext=variant.conduct.cleartext),
            join_files=self._join_files,
            nginx_cpus=self.nginx_cpus,
            memory_bytes=self.lab.memory_bytes,
        )
        with _naming(variant):
            return self._sandbox.ask(RUN, request)


def _test_command(program: str, variant: Variant) -> list[str]:
    prefix = ["-p", variant.prefix] if variant.prefix else []
    return [program, "-t", "-c", variant.conf_path, *prefix]


@contextlib.contextmanager
def _naming(variant: Variant) -> Iterator[None]:
    """Add the program to an error, if the variant does not use the session's nginx."""
    try:
        yield
    except ConfigurationError as error:
        if variant.conduct.binary is None or error.hint:
            raise
        hint = f"refused by {variant.conduct.binary}"
        raise ConfigurationError(error.message, hint=hint) from None


def split_cpus(cpus: list[int], *, separate: bool) -> tuple[list[int], list[int]]:
    """CPUs for nginx and for the load probe; disjoint if ``separate`` and there are two or more."""
    if not separate or len(cpus) < 2:  # noqa: PLR2004
        return cpus, cpus
    half = len(cpus) // 2
    return cpus[:half], cpus[half:]


def place_site(site: Site, lab: Lab, placement: Placement) -> Site:
    """The site with the address, certificate, origin and cache of the lab."""
    changes: dict[str, object] = {"listen": [_listen(listen, placement) for listen in site.listen]}
    if placement.certificate is not None and placement.certificate_key is not None:
        changes["tls"] = SiteTls(
            certificate=placement.certificate, certificate_key=placement.certificate_key
        )
    if placement.origin is not None:
        changes["upstreams"] = [Upstream(name="origin", servers=[placement.origin])]
        caches = [disk for disk in lab.disks if disk.writable and not disk.spare]
        changes["cache_dirs"] = [disk.mount for disk in caches]
        changes["cache_bounds"] = {disk.mount: _bounds(disk) for disk in caches}
    return msgspec.structs.replace(site, **changes)


def _bounds(disk: LabDisk) -> CacheBounds:
    """A cache's bounds on a lab disk: three quarters of its space, with a sixteenth kept free."""
    room = disk.room_bytes >> 20
    return CacheBounds(max_bytes=room * 3 // 4 << 20, min_free_bytes=max(1, room // 16) << 20)


def _listen(listen: str, placement: Placement) -> str:
    placed = listen.replace(f"{LOOPBACK}:", f"{placement.address}:", 1)
    is_tls = placement.certificate is not None and "ssl" not in placed.split()
    return f"{placed} ssl" if is_tls else placed


def place_plan(plan: LoadPlan, placement: Placement, *, cleartext: bool = False) -> LoadPlan:
    """The plan with the targets at which the lab's clients reach nginx, over TLS if the lab has it.

    ``cleartext``: true for a variant that listens without TLS in a lab with TLS.

    Certificates are not checked: nobody else can answer in the sandbox, and an operator's
    configuration brings its own certificate.
    """
    target, permit = plan.target, plan.permit
    if placement.certificate is not None and not cleartext:
        target = msgspec.structs.replace(target, tls=Tls(verify=False))
    if placement.address != LOOPBACK and target.unix is None:
        target = msgspec.structs.replace(target, address=placement.address)
        permit = msgspec.structs.replace(permit, hosts=[*permit.hosts, placement.address])
    classes = [_placed_class(item, placement) for item in plan.classes]
    return msgspec.structs.replace(plan, target=target, permit=permit, classes=classes)


def _placed_class(item: LoadClass, placement: Placement) -> LoadClass:
    """The class; if it has its own target, with the address at which the lab's clients reach it."""
    if item.target is None or item.target.address != LOOPBACK:
        return item
    target = msgspec.structs.replace(item.target, address=placement.address)
    return msgspec.structs.replace(item, target=target)


def list_labs() -> Labs:
    """The labs of this user, running or dead, and the cached disk images."""
    return Labs(
        runs=[_lab_run(left) for left in find_labs()],
        images=[_image(cached) for cached in list_images()],
        image_bytes_most=CACHE_BYTES,
    )


def clean_labs(*, with_images: bool) -> Labs:
    """Remove the remains of dead labs and unused cached images; returns what was removed.

    It removes only what bears the mark of a command that no longer runs.
    """
    dead = [left for left in find_labs() if not left.running]
    described = [_lab_run(left) for left in dead]
    gone = {str(directory) for directory in clean_dead(dead)}
    failures = [f"{run.directory}: not removed" for run in described if run.directory not in gone]
    removed: list[KeptImage] = []
    for cached in list_images() if with_images else []:
        described_image = _image(cached)
        if remove_image(cached.path):
            removed.append(described_image)
    return Labs(
        runs=[run for run in described if run.directory in gone],
        images=removed,
        image_bytes_most=CACHE_BYTES,
        tracing=sweep_tracing(),
        failures=failures,
    )


def _lab_run(left: Leftover) -> LabRun:
    return LabRun(
        directory=str(left.directory),
        mark=left.mark,
        pid=left.pid,
        state="running" if left.running else "dead",
        bytes=sum(_bytes(path) for path in left.directory.rglob("*")),
        cgroups=[group for group in left.cgroups if Path(group).is_dir()],
    )


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def _image(cached: Cached) -> KeptImage:
    return KeptImage(
        path=str(cached.path),
        bytes=cached.bytes,
        in_use=cached.in_use,
        unused_seconds=max(0.0, time.time() - cached.used_at),
    )


_MOST_FILES = 20_000
"""Files of one root that a load requests."""


def served_files(root: str) -> list[ServedFile]:
    """World-readable files below a root by path, the file of median size first."""
    files: list[ServedFile] = []
    for in_directory in _by_directory(root):
        files += in_directory
        if len(files) >= _MOST_FILES:
            break
    # The hot file is a typical one, so that the hot load is not the easiest of all.
    typical = sorted(files, key=lambda file: file.bytes)[len(files) // 2] if files else None
    return [typical, *(f for f in files if f != typical)] if typical else []


def bytes_below(root: str) -> int:
    """The size of the files below a root that ``served_files`` would list."""
    return sum(file.bytes for file in served_files(root))


def has_files(root: str) -> bool:
    """True if a root has any file that nginx could serve."""
    return any(_by_directory(root))


def _by_directory(root: str) -> Iterator[list[ServedFile]]:
    pending = [Path(root)]
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        found = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                size = entry.stat().st_size
                if size and entry.stat().st_mode & 0o004:
                    found.append(ServedFile(entry.path, size))
        yield found


def lab_files(session: Session, root: str) -> list[ServedFile]:
    """The files of the lab's disks below a served root.

    Errors: UndecidedError if there are none.
    """
    served = [f for files in session.files.values() for f in files if is_below(f.url, root)]
    if not served:
        mounts = ", ".join(shown(disk.mount) for disk in session.lab.disks)
        raise UndecidedError(
            f"nginx serves {shown(root)}, but the lab's disks are mounted at {mounts}",
            hint="remove 'mount' from the lab, or set it to the root",
        )
    return served


def as_url(file: ServedFile, *, root: str, url_prefix: str) -> ServedFile:
    """A file below a root by its URL."""
    name = quote_from_bytes(os.fsencode(os.path.relpath(file.url, root)))
    return ServedFile(f"{url_prefix}/{name}", file.bytes)


def shown(path: str) -> str:
    """A path for output, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")
