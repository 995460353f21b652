"""Options that several commands have, and the types of their values.

The number types here are stricter than click's. Python reads ``nan``, ``1e400``, ``1_000`` and the
digits of every script as numbers; a comparison with NaN is false, so click accepts NaN in any
range.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nginx_tune.errors import UsageError
from nginx_tune.report.terminal.saying import say

if TYPE_CHECKING:
    from nginx_tune.documents.facts import Nginx
    from nginx_tune.documents.measurement import Measurement
    from nginx_tune.documents.run import RunKind
    from nginx_tune.experiment.store import Clock, KeptResult


F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]


def option_group(options: Sequence[Option]) -> Callable[[F], F]:
    """A decorator that adds these options to a command, in their order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|)")
_LONGEST_SECONDS = 366 * 86400.0
_LONGEST_TEXT = 60


def parse_duration(text: str) -> float:
    """Seconds of ``10s``, ``1.5m``, ``200ms``; a bare number is seconds.

    Errors: UsageError for anything else, for an empty text, and for more than a year.
    """
    match = _FORM.fullmatch(text.strip())
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if match is None or seconds <= 0:
        raise UsageError(f"'{shown}' is not a duration", hint="for example 10s, 1.5m, 200ms")
    if seconds > _LONGEST_SECONDS:
        raise UsageError(f"'{shown}' is too long", hint="a year, 8784h, is the longest")
    return seconds


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})?")


class Whole(click.IntRange):
    """A whole number of at most eighteen digits, in a range."""

    name = "n"

    def _describe_range(self) -> str:
        """The range as shown in the help; empty without bounds, for which click has no text."""
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A whole number from text. Errors: BadParameter."""
        if not _WHOLE.fullmatch(str(value).strip()):
            self.fail(f"'{value}' is not a whole number, or has too many digits", param, ctx)
        return super().convert(value, param, ctx)


class FiniteNumber(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A finite number from text. Errors: BadParameter."""
        if not _NUMBER.fullmatch(str(value).strip()):
            self.fail(f"'{value}' is not a number, or is too long", param, ctx)
        return super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer click alone
    """A duration such as 10s, kept as text; or one of the words given."""

    name = "time"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The duration as text. Errors: BadParameter."""
        text = str(value)
        if text not in self._words:
            try:
                parse_duration(text)
            except UsageError as error:
                self.fail(f"{error.message} ({error.hint})", param, ctx)
        return text


DURATION = Duration()


prefix_option = click.option(
    "-p",
    "prefix",
    metavar="PREFIX",
    help="Prefix path, as nginx's -p: the base of relative names, including CONF.",
)


def _read_maps(
    _ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The pairs of ``PREFIX=DIR``, without trailing slashes."""
    pairs = []
    for value in given:
        prefix, equals, directory = value.partition("=")
        if not equals or not prefix.startswith("/") or not directory:
            raise click.UsageError(f"--map {value}: give PREFIX=DIR with an absolute prefix")
        here = directory.rstrip("/") or "/"
        pairs.append((prefix.rstrip("/"), "" if here == "." else here.removeprefix("./")))
    return tuple(pairs)


def check_maps(maps: Sequence[tuple[str, str]]) -> None:
    """Refuse a ``--map`` whose directory does not exist."""
    for prefix, directory in maps:
        if not os.path.isdir(directory or "."):  # noqa: PTH112  # without pathlib --help is quicker
            raise UsageError(f"--map {prefix}={directory or '.'}: no such directory")


map_option = click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="PREFIX=DIR",
    callback=_read_maps,
    help="Read files that the configuration names below PREFIX from below DIR; may repeat. For a "
    "tree of another host: its absolute names are found only by --map.",
)


accept_missing_option = click.option(
    "--accept-missing",
    multiple=True,
    metavar="GLOB",
    help="Includes that may be missing, by the name that nginx would open; may repeat. Any other "
    "missing include gives exit status 4.",
)


LIVE = "live"
"""The value of ``--facts`` for this host, even if the configuration is not that of its nginx."""
HOST_ALONE = "this host, with only the directories of its own nginx's configuration"


def facts_option(name: str, default: str, *, or_none: bool = False) -> Option:
    """``--facts``, as the parameter ``name``; ``default`` completes the help."""
    return click.option(
        "--facts",
        name,
        metavar="FILE|live|none" if or_none else "FILE|live",
        help="The facts of the host: a file from inspect -f json (-: standard input), or live for "
        f"this host, with the directories that the configuration names; default: {default}.",
    )


lab_option = click.option(
    "--lab",
    metavar="SPEC",
    help="Emulate a host with generated data (needs root): a class (hdd, ssd, nvme, memory), a "
    "TOML file that describes one, or the facts of one (JSON).",
)

KINDS = ("static", "media", "cache", "proxy")
kind_option = click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="Kind of site (default: inferred from the other inputs, else static).",
)


nginx_version_option = click.option(
    "--nginx-version",
    "nginx_version",
    metavar="V",
    callback=lambda _ctx, option, value: read_version(option, value),
    help="nginx version of the target, such as 1.26.3; default: that of the facts.",
)


def read_version(option: click.Parameter, value: str | None) -> str | None:
    """The given version; for one newer than all known ones, a note is printed.

    Errors: BadParameter for a version that ``version_fault`` refuses.
    """
    if value is None:
        return None
    from nginx_tune.conf.known_directives import newest_version, version_fault  # noqa: PLC0415  # large tables

    if fault := version_fault(value):
        raise click.BadParameter(fault, param=option)
    context = click.get_current_context(silent=True)
    is_newer = tuple(map(int, value.split("."))) > newest_version()
    if is_newer and not (context and context.obj and context.obj.get("quiet")):
        newest = ".".join(map(str, newest_version()))
        say(
            f"nginx {value} is newer than {newest}, the newest known version: later changes are "
            "not judged"
        )
    return value


_HOST_OPTIONS = (
    click.option(
        "--host",
        "host_path",
        metavar="FILE",
        help="A description of a host, its data and its traffic (TOML); 'inspect -f toml' writes "
        "that of this host.",
    ),
    click.option(
        "--cpus",
        type=FiniteNumber(min=0.01, max=16384),
        metavar="N",
        help="Describe the host instead of reading this one: CPUs that nginx can use.",
    ),
    click.option("--memory", metavar="SIZE", help="Its memory, such as 16G."),
    click.option(
        "--disk",
        "disks",
        multiple=True,
        metavar="KIND[:COUNT[:SIZE]]",
        help="Its disks, such as nvme, hdd:12:16TB, gp3,6000,250m or nfs; may repeat.",
    ),
    click.option("--link", metavar="SPEED", help="Its network link, such as 10G."),
    click.option("--data", metavar="SIZE", help="Size of all served data, such as 2T."),
    click.option("--mean-size", metavar="SIZE", help="Mean size of a requested file."),
    click.option(
        "--rate",
        metavar="R",
        help="Demand on the host: requests for files per second, or a bandwidth such as 8Gbit/s; "
        "default: the workload's.",
    ),
    click.option(
        "--objective",
        metavar="EXPR",
        help="Limit on response times, such as 'p99 <= 50ms' or 'hot.p99 <= 5ms'; default: the "
        "workload's.",
    ),
)


def host_options(function: F) -> F:
    """Add the options that describe a host; the command gets ``described``, None without any."""

    @functools.wraps(function)
    def called(
        *arguments: Any,
        host_path: str | None,
        cpus: float | None,
        memory: str | None,
        disks: tuple[str, ...],
        link: str | None,
        data: str | None,
        **options: Any,
    ) -> Any:
        words = {"cpus": cpus, "memory": memory, "link": link, "data": data}
        words |= {name: options.pop(name) for name in ("mean_size", "rate", "objective")}
        given = {name: value for name, value in words.items() if value is not None}
        described = None
        if host_path or disks or given:
            from nginx_tune.cli.described import read_described  # noqa: PLC0415  # only with one

            described = read_described(host_path, disks, given)
        return function(*arguments, described=described, **options)

    return option_group(_HOST_OPTIONS)(called)  # type: ignore[return-value]  # but for its options


_NAMED = ("nginx_binary", "against_nginx", "new_nginx")
"""The parameters that name a program; not every command has them all."""


_TRUST_HELP = "As root, accept programs and files that other users could have written."
_NGINX_OPTIONS = (
    click.option(
        "--nginx",
        "nginx_binary",
        metavar="BIN",
        help="The nginx program to use; default: the running nginx, else the installed one.",
    ),
    click.option("--trust", "trusts_named", is_flag=True, help=_TRUST_HELP),
)


against_nginx_option = click.option(
    "--against-nginx", metavar="BIN", help="The baseline's nginx, if different."
)


def nginx_options(function: F) -> F:
    """Add ``--nginx`` and ``--trust``; only the first becomes a parameter, ``nginx_binary``."""

    @functools.wraps(function)
    def called(*arguments: Any, trusts_named: bool, **options: Any) -> Any:
        if trusts_named:
            _vouch(*filter(None, map(options.get, _NAMED)))
        return function(*arguments, **options)

    return option_group(_NGINX_OPTIONS)(called)  # type: ignore[return-value]  # but for its options


_TRUSTING_OPTIONS = (_NGINX_OPTIONS[0], click.option("--trust", is_flag=True, help=_TRUST_HELP))


def trusting_options(function: F) -> F:
    """Add ``--nginx``, and ``--trust`` for files too; the command gets ``trust`` as well."""

    @functools.wraps(function)
    def called(*arguments: Any, trust: bool, **options: Any) -> Any:
        binaries = [*filter(None, map(options.get, _NAMED))]
        if trust and binaries:
            _vouch(*binaries)
        return function(*arguments, trust=trust, **options)

    return option_group(_TRUSTING_OPTIONS)(called)  # type: ignore[return-value]  # but for its options


def _vouch(*binaries: str) -> None:
    from nginx_tune.host import programs  # noqa: PLC0415  # only with the option

    if not binaries:
        raise UsageError("--trust has no program to trust", hint="name it with --nginx")
    for binary in binaries:
        places = [binary] if "/" in binary else [f"{p}/{binary}" for p in programs.search_path()]
        for place in places:
            programs.vouch_for(place)


def tell_choice(ctx: click.Context, nginx: Nginx) -> None:
    """Print the chosen nginx on stderr if there were several."""
    from nginx_tune.report.facts_nginx import choice_lines, is_doubtful  # noqa: PLC0415  # rarely

    if is_doubtful(nginx) and not ctx.obj["quiet"]:
        for line in choice_lines(nginx):
            say(line)


_WEAKER_WALLS = click.option(
    "--weaker-sandbox",
    "weaker_sandbox",
    multiple=True,
    type=click.Choice(["memory", "processes", "seccomp", "sockets"]),
    help="Continue without this part of the sandbox if the host lacks it; the result says so.",
)


def weaker_sandbox_option(function: F) -> F:
    """Add ``--weaker-sandbox``, which is not passed to the command."""

    @functools.wraps(function)
    def called(*arguments: Any, weaker_sandbox: tuple[Any, ...], **options: Any) -> Any:
        if weaker_sandbox:
            from nginx_tune.nginx.lab.sandbox import give_up  # noqa: PLC0415  # only with the option

            give_up(weaker_sandbox)
        return function(*arguments, **options)

    wrapped: Any = _WEAKER_WALLS(called)
    return wrapped  # type: ignore[no-any-return]  # the same but for its option


_NO_DATA = ("/proc", "/sys", "/dev")
_MEMORY = "/dev/shm"  # noqa: S108  # for file systems in memory


def data_directories(
    _: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse /proc, /sys and /dev (except /dev/shm), whose files have no size and no end.

    Errors: BadParameter.
    """
    if values:
        from nginx_tune.host.parse_storage import is_inside  # noqa: PLC0415  # only with a name
    for value in values:
        real = os.path.realpath(value)
        if is_inside(real, _MEMORY):
            continue
        for place in _NO_DATA:
            if is_inside(real, place):
                raise UsageError(
                    f"{option.opts[0]} {value}: {place} holds no files that nginx serves",
                    hint="name the directory of the site's files",
                )
    return values


store_option = click.option(
    "--no-store", is_flag=True, help="Do not store the run for 'nginx-tune runs'."
)


def keep_run(
    ctx: click.Context, result: KeptResult, *, kind: RunKind, name: str, clock: Clock
) -> None:
    """Store a run and print its id; a failure is only reported, since the run is still valid."""
    from nginx_tune.errors import UndecidedError  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.experiment.store import store_run  # noqa: PLC0415

    # A path may have bytes that are not UTF-8.
    shown = os.fsencode(name).decode(errors="backslashreplace")
    try:
        summary = store_run(result, kind=kind, name=shown, clock=clock)
        said, hint = f"stored as run {summary.id}", ""
    except UndecidedError as error:
        said, hint = error.message, error.hint
    if not (ctx.obj or {}).get("quiet"):
        say(said, hint)


def histogram_option(function: F) -> F:
    """Add ``--histogram LATENCY``."""
    return click.option(
        "--histogram",
        "histograms",
        multiple=True,
        metavar="LATENCY",
        help="Show this latency by powers of two, with min, mean, median, max, stdev and count: a "
        "class (hot), hot.ttfb, server.loop_turn_seconds, all; may repeat.",
    )(function)


def histogram_text(
    measurements: Sequence[Measurement], names: Sequence[str], *, discard: bool = False
) -> str:
    """Histograms as text, to print below a report; empty if none are requested.

    ``names`` are latencies such as ``hot``. ``discard`` leaves out the runs that the verdict
    discards.
    """
    if not names:
        return ""
    from nginx_tune.measure.proof.power_of_two import histograms_of  # noqa: PLC0415  # heavy
    from nginx_tune.report.probing import render_histograms  # noqa: PLC0415

    return "\n" + render_histograms(histograms_of(measurements, names, discard=discard))
