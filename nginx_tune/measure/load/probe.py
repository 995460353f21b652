"""Runs of the load probe: a JSON plan in, progress lines and a JSON result out.

The probe is a separate process so that Python's threads and garbage collection do not affect the
measurement. It checks its plan itself, and dies with this process.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import IO, Any, NoReturn
from urllib.parse import unquote

import msgspec

import nginx_tune
from nginx_tune.documents.base import D, Document, decode, encode
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Measurement
from nginx_tune.errors import ExitStatus, MissingToolError, UndecidedError, UsageError
from nginx_tune.host.programs import start_program
from nginx_tune.measure.load.target import plain_manifests

PROBE = "nginx-tune-probe"
WHEELS = ("x86_64", "aarch64")
"""CPUs for which a release has a wheel with a probe."""
PLATFORMS = "manylinux_2_17_{cpu}.manylinux2014_{cpu}.musllinux_1_1_{cpu}"
"""The platform tags of a wheel with a probe, as ``build_hook.py`` writes them."""
_PATIENCE_SECONDS = 15.0
"""Time allowed beyond the plan, to start and to print on a busy machine."""
_INTERRUPTED_SECONDS = 3.0
"""Time allowed after a signal; the probe prints its result within a second."""
_READ_BYTES = 1 << 16
_LOOK_SECONDS = 0.05
ProbeProgress = Callable[[dict[str, Any]], None]


class ProbeInterrupted(KeyboardInterrupt):  # it is a KeyboardInterrupt
    """Ctrl-C during a run; ``measurement`` covers the time so far, if the probe printed one."""

    def __init__(self, measurement: Measurement | None) -> None:
        super().__init__()
        self.measurement = measurement


def run_probe(
    plan: LoadPlan,
    *,
    on_progress: ProbeProgress | None = None,
    cpus: Sequence[int] | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Measurement:
    """Run a load plan; returns its measurement.

    ``on_progress`` gets an object every second; ``cpus`` replaces the plan's; ``is_over`` ends the
    run early, with a measurement of the time so far.
    Errors: UsageError if the probe refuses plan or target, UndecidedError if it fails or does not
            end, MissingToolError without a probe, ProbeInterrupted on Ctrl-C.
    """
    if cpus is not None:
        plan = msgspec.structs.replace(plan, cpus=list(cpus))
    waits = max((plan.start_at_unix_seconds or 0.0) - time.time(), 0.0)
    seconds = waits + plan.warmup_seconds + plan.duration_seconds + plan.drain_seconds
    try:
        with plain_manifests(plan) as readable:
            return run_plan(
                readable,
                Measurement,
                name="load probe",
                seconds=seconds,
                on_progress=on_progress,
                is_over=is_over,
            )
    except RunInterrupted as interrupted:
        seen = interrupted.result
        raise ProbeInterrupted(seen if isinstance(seen, Measurement) else None) from None


class RunInterrupted(KeyboardInterrupt):  # it is a KeyboardInterrupt
    """Ctrl-C during a run; ``result`` covers the time so far, if the probe printed one."""

    def __init__(self, result: Document | None) -> None:
        super().__init__()
        self.result = result


def find_probe() -> Path:
    """The probe's executable: in the package, else built by cargo in a checkout.

    Errors: MissingToolError without one.
    """
    package = Path(nginx_tune.__file__).parent
    for place in (package / "_bin", package.parent / "probes" / "target" / "release"):
        if os.access(place / PROBE, os.X_OK, effective_ids=True):
            return place / PROBE
    raise MissingToolError("this installation has no load probe", hint=_install_command(package))


def _install_command(package: Path) -> str:
    """The command that adds the probe to this installation, given its installer and origin.

    In a checkout, cargo builds the probe. An installation from sources is repeated with cargo. An
    installation from the wheel without a probe is replaced by the wheel for this CPU.
    Source: PEP 376 (INSTALLER), PEP 610 (direct_url.json).
    """
    if (crate := package.parent / "probes").joinpath("Cargo.toml").is_file():
        return f"with cargo 1.85 or later: cd {quote(str(crate))} && cargo build --release --locked"
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415  # seldom

    installer = origin = ""
    with contextlib.suppress(PackageNotFoundError):
        installed = distribution("nginx-tune")
        installer = (installed.read_text("INSTALLER") or "").strip()
        origin = json.loads(installed.read_text("direct_url.json") or "{}").get("url", "")
    python = quote(sys.executable)
    install = f"{python} -m pip install --force-reinstall --no-deps"
    if installer == "uv":  # its environments have no pip
        install = f"uv pip install --python {python} --reinstall-package nginx-tune"
    if origin and not origin.endswith(".whl"):
        source = quote(unquote(origin.removeprefix("file://")))
        return f"with cargo 1.85 or later: NGINX_TUNE_REQUIRE_RUST=1 {install} {source}"
    cpu = os.uname().machine
    if cpu not in WHEELS:
        return f"with cargo 1.85 or later: NGINX_TUNE_REQUIRE_RUST=1 {install} CHECKOUT"
    place = unquote(origin.removeprefix("file://")).rpartition("/")[0]
    wheel = f"nginx_tune-{nginx_tune.__version__}-py3-none-{PLATFORMS.format(cpu=cpu)}.whl"
    return f"{install} {quote(f'{place}/{wheel}' if place else wheel)}"


def run_plan(
    plan: Document,
    kind: type[D],
    *,
    name: str,
    seconds: float,
    arguments: Sequence[str] = (),
    on_progress: ProbeProgress | None = None,
    is_over: Callable[[], bool] | None = None,
) -> D:
    """Run a plan that takes ``seconds``; returns its result, a document of ``kind``.

    ``name``: the probe's name in errors. ``is_over`` ends the run early, with the result so far.
    Errors: UsageError if the probe refuses the plan, UndecidedError if it fails or does not end,
            MissingToolError without a probe, RunInterrupted on Ctrl-C.
    """
    with _start(find_probe(), plan, name, arguments) as run:
        try:
            run.read(seconds + _PATIENCE_SECONDS, on_progress, is_over)
        except KeyboardInterrupt:
            run.interrupt()
            raise RunInterrupted(run.partial(kind)) from None
        return run.result(kind)


class _Run:
    """A running probe, with its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], progress: IO[bytes], name: str) -> None:
        self._process = process
        self._progress = progress
        self._name = name
        self._output = bytearray()
        self._errors = bytearray()
        self._line = bytearray()

    def read(
        self,
        seconds: float,
        on_progress: ProbeProgress | None,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        """Read all output of the probe until it ends."""
        longest = 60.0 if is_over is None else _LOOK_SECONDS
        deadline = time.monotonic() + seconds
        assert self._process.stdout is not None  # noqa: S101  # both are pipes
        assert self._process.stderr is not None  # noqa: S101
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ, self._output.extend)
            selector.register(self._process.stderr, selectors.EVENT_READ, self._errors.extend)
            selector.register(
                self._progress,
                selectors.EVENT_READ,
                lambda data: self._take_progress(data, on_progress),
            )
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise UndecidedError(f"the {self._name} did not end within {seconds:.0f} s")
                if is_over is not None and is_over():
                    self._process.send_signal(signal.SIGINT)
                    is_over = None
                for key, _ in selector.select(min(left, longest)):
                    data = os.read(key.fd, _READ_BYTES)
                    if data:
                        key.data(data)
                    else:
                        selector.unregister(key.fileobj)
        self._process.wait(timeout=max(deadline - time.monotonic(), 0.1))

    def _take_progress(self, data: bytes, on_progress: ProbeProgress | None) -> None:
        self._line += data
        *lines, self._line = self._line.split(b"\n")
        for line in lines:
            if on_progress is not None:
                on_progress(msgspec.json.decode(line))

    def interrupt(self) -> None:
        """End the probe now, and read its result."""
        self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt, UndecidedError, subprocess.TimeoutExpired):
            self.read(_INTERRUPTED_SECONDS, None)

    def partial(self, kind: type[D]) -> D | None:
        """The result of an interrupted run, if the probe printed one."""
        try:
            return decode(kind, bytes(self._output))
        except UsageError:
            return None

    def result(self, kind: type[D]) -> D:
        """The result. Errors: the probe's own, or UndecidedError for a result that is malformed."""
        if self._process.returncode not in (ExitStatus.OK, ExitStatus.INTERRUPTED):
            self._fail()
        try:
            return decode(kind, bytes(self._output), source=self._name)
        except UsageError as error:
            raise UndecidedError(error.message) from None

    def _fail(self) -> NoReturn:
        lines = self._errors.decode(errors="replace").strip().splitlines()
        status = self._process.returncode
        message = lines[-1].removeprefix(f"{PROBE}: ") if lines else f"exit status {status}"
        if status == ExitStatus.USAGE:
            capped = "above the cap of" in message
            hint = "a cap can be raised: probe --cap NAME=VALUE" if capped else ""
            raise UsageError(f"{self._name}: {message}", hint=hint)
        raise UndecidedError(f"{self._name}: {message}")


@contextlib.contextmanager
def _start(probe: Path, plan: Document, name: str, arguments: Sequence[str]) -> Iterator[_Run]:
    """Run the probe on a plan inside the context, and kill it at its end."""
    reading, writing = os.pipe()
    # A file, not a pipe: a plan of many paths is larger than a pipe holds. In memory, since a
    # container may have no directory to write to.
    in_memory = os.memfd_create("plan")
    with (
        os.fdopen(reading, "rb", buffering=0) as progress,
        os.fdopen(in_memory, "w+b") as plan_file,
    ):
        try:
            plan_file.write(encode(plan))
            plan_file.seek(0)
            process = start_program(
                [probe, *arguments, "--progress-fd", str(writing)],
                is_checked=True,
                stdin=plan_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[writing],
                # The terminal's Ctrl-C must reach the probe only through us, once.
                start_new_session=True,
            )
        except OSError as error:
            raise UndecidedError(f"the {name} does not start: {error.strerror}") from None
        finally:
            os.close(writing)
        with process:
            try:
                yield _Run(process, progress, name)
            finally:
                if process.poll() is None:
                    process.kill()
