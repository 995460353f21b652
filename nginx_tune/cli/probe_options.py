"""The options of ``probe``, by purpose."""

from collections.abc import Sequence

import click

from nginx_tune.cli.options import DURATION, Duration, Option, Whole, histogram_option, option_group

_LOAD = [
    click.option(
        "--connections",
        type=Whole(1, 100_000),
        metavar="N",
        help="Closed loop: N users (default 10), each with a connection of its own, send a "
        "request after each response. With --rate: N connections are kept open and used in "
        "turn.",
    ),
    click.option(
        "--rate",
        metavar="R",
        help="Open loop: R requests per second at random times, even if the server cannot keep "
        "up. 100,200,400: equal steps; 100-500: an even rise.",
    ),
    click.option(
        "--duration",
        default="10s",
        show_default=True,
        type=DURATION,
        metavar="TIME",
        help="Time that is measured.",
    ),
    click.option(
        "--warmup",
        default="1s",
        show_default=True,
        type=Duration("0", "0s"),
        metavar="TIME",
        help="Time of load before the measurement; 0 for none.",
    ),
    click.option(
        "--threads",
        type=Whole(1, 256),
        metavar="N",
        help="Threads that share one schedule (default: by the rate, at most half of the CPUs).",
    ),
]
_REQUESTS = [
    click.option(
        "--paths-from",
        metavar="FILE",
        help="Request the paths of a list (one per line, equally often) or of a manifest, instead "
        "of the URL's path.",
    ),
    click.option(
        "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="May repeat."
    ),
    click.option(
        "--status", default="200", show_default=True, help="Expected status, or several: 200,304."
    ),
    click.option(
        "--timeout",
        default="30s",
        show_default=True,
        type=DURATION,
        metavar="TIME",
        help="Longest time for one request.",
    ),
    click.option(
        "--keepalive",
        default="on",
        show_default=True,
        metavar="on|off|N|1/N",
        help="Requests per connection: on (any number), off (one), N, or 1/N (closed with that "
        "probability after each).",
    ),
]
_PROTOCOL = [
    click.option(
        "--http2",
        is_flag=True,
        help="Use HTTP/2: over TLS by ALPN, else with prior knowledge. Connections (10 in a "
        "closed loop, 32 with --rate) stay open, and each user keeps one connection.",
    ),
    click.option(
        "--http3",
        is_flag=True,
        help="Use HTTP/3: QUIC over UDP, to the same port; otherwise as with --http2.",
    ),
    click.option(
        "--streams",
        type=Whole(1, 10_000),
        metavar="M",
        help="HTTP/2, HTTP/3: at most M concurrent requests on a connection (default: 100, or the "
        "server's limit). Closed loop: M users on each connection (default: 10).",
    ),
    click.option(
        "-k",
        "--insecure",
        is_flag=True,
        help="Accept any certificate of an https server, as curl -k does.",
    ),
    click.option(
        "--cacert",
        "ca_file",
        type=click.Path(dir_okay=False, resolve_path=True),
        metavar="FILE",
        help="Trust the authorities in this PEM file, not the system's.",
    ),
]
_RESULT = [
    click.option(
        "--objective",
        "objectives",
        multiple=True,
        metavar="EXPR",
        help="Search for the highest rate that meets it without failures: 'p99 <= 50ms'; may "
        "repeat. The search begins at --rate (100) and ends at --cap rate.",
    ),
    click.option(
        "--require",
        "requires",
        multiple=True,
        metavar="EXPR",
        help="A gate: exit 1 unless it holds, 4 if it was not measured. 'p99 <= 50ms', 'errors == "
        "0'; may repeat.",
    ),
    histogram_option,
]
_HOSTS = [
    click.option(
        "--stripe", metavar="M/N", help="Run the share of load host M of N; the first is 0/N."
    ),
    click.option(
        "--start-at",
        metavar="TIME",
        help="Start at a time, the same on all load hosts: 2026-11-20T19:00:00Z.",
    ),
]
_RAILS = [
    click.option(
        "--allow-live", is_flag=True, help="Allow load on a server that nginx-tune did not start."
    ),
    click.option(
        "--allow-target",
        "allow_targets",
        multiple=True,
        metavar="HOST",
        help="Allow load on this other host (name or address); may repeat.",
    ),
    click.option(
        "--cap",
        "caps",
        multiple=True,
        metavar="NAME=VALUE",
        help="Bound of the run: seconds=600, bytes=4096g, requests=100000000, connections=4096, "
        "rate=200000 (the defaults); may repeat. A load plan can only lower them.",
    ),
]
_SECTIONS = {
    "Load": _LOAD,
    "Requests": _REQUESTS,
    "Protocol": _PROTOCOL,
    "Result": _RESULT,
    "Several load hosts": _HOSTS,
    "Guard rails": _RAILS,
}
_OF_URL = (_LOAD, _REQUESTS, _PROTOCOL)
"""Options for the load of a URL; a load plan has its own values."""

probe_options = option_group([option for options in _SECTIONS.values() for option in options])
"""The command with its options."""


def _names(options: Sequence[Option]) -> list[str | None]:
    command = click.command()(option_group(options)(lambda: None))
    return [param.name for param in command.params]


def given_options(ctx: click.Context) -> dict[str, str]:
    """The options for a URL's load that the caller gave, as typed, by parameter."""
    own = {name for options in _OF_URL for name in _names(options)}
    return {
        parameter.name: parameter.opts[-1]
        for parameter in ctx.command.params
        if parameter.name in own
        and ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    }


class InSections(click.Command):
    """A command whose help shows its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, then the options of all commands."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records: dict[str | None, tuple[str, str] | None] = {
            option.name: option.get_help_record(ctx) for option in options
        }
        sections = {title: _names(options) for title, options in _SECTIONS.items()}
        named = {name for names in sections.values() for name in names}
        sections["Output"] = [name for name in records if name not in named]
        for title, names in sections.items():
            rows = [record for name in names if (record := records[name]) is not None]
            with formatter.section(title):
                formatter.write_dl(rows)
