"""``nginx-tune size``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from nginx_tune.cli.deciding import deciding_options, read_hosts_own, read_inputs
from nginx_tune.documents.described_host import parse_size
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.report.terminal.output import output_options
from nginx_tune.report.terminal.writer import SCREEN_FORMATS, write_screen

if TYPE_CHECKING:
    from nginx_tune.decide.size import HostSizes, Prices
    from nginx_tune.documents.sizing import Sizing

_PRICED = ("hdd", "ssd", "nvme", "card", "network", "virtual", "unknown")
_AMOUNT = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_PROOF = "proof.toml"


@click.command()
@deciding_options
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="memory=N/SIZE|CLASS=N",
    help="Price of memory (memory=3/16G) or of one disk of a class (nvme=80), in any currency; "
    "may repeat. The table has the named classes.",
)
@output_options(*SCREEN_FORMATS, "scenario")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    prices: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> None:
    """The request rate that a host can serve, or the memory and disks for a given rate.

    The table has, for each memory size and disk, the requests for files per second within the
    objective, their range, and the resource that limits them. -f scenario writes the nearest host
    as an experiment for the lab. The site is that of the host's nginx, as for recommend.
    """
    from nginx_tune.decide.objectives import time_goal  # noqa: PLC0415  # not for --help
    from nginx_tune.decide.size import SizeRequest, size_hosts  # noqa: PLC0415
    from nginx_tune.report.size import sizing_screen  # noqa: PLC0415

    priced = _prices(prices)
    held = read_hosts_own(ctx, named)
    inputs = held.inputs if held else read_inputs(ctx, **named)
    inputs.tell()
    goal, objective = time_goal(inputs.workload.objectives) or (None, None)
    sizes = size_hosts(
        inputs.facts,
        inputs.workload,
        site=inputs.site,
        request=SizeRequest(
            goal=goal,
            objective=objective.expression if objective else "",
            objective_provenance=objective.provenance if objective else "declared",
            prices=priced,
        ),
    )
    sizing, scenario = _with_proof(sizes, sizes.sizing(), ctx)
    write_screen(
        lambda: sizing_screen(sizing), sizing, formats, output, scenario=lambda: _scenario(scenario)
    )


def _with_proof(
    sizes: HostSizes, sizing: Sizing, ctx: click.Context
) -> tuple[Sizing, Mapping[str, Any] | UndecidedError]:
    """The sizing with the command that measures it, and the scenario, or why there is none."""
    from nginx_tune.experiment.scenario.sized import sized_scenario  # noqa: PLC0415  # heavy

    try:
        scenario = sized_scenario(sizes, sizing)
    except UndecidedError as error:
        return replace(sizing, no_proof=error.message), error
    return replace(sizing, prove_command=_proof_command(ctx)), scenario


def _scenario(found: Mapping[str, Any] | UndecidedError) -> bytes:
    """The scenario as TOML. Errors: UndecidedError if there is none."""
    import tomli_w  # noqa: PLC0415

    if isinstance(found, UndecidedError):
        raise found
    return tomli_w.dumps(found).encode()


def _prices(texts: tuple[str, ...]) -> Prices:
    from nginx_tune.decide.size import Prices  # noqa: PLC0415  # not for --help

    of_memory: float | None = None
    of_disk: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        amount, slash, size = value.partition("/")
        if not _AMOUNT.fullmatch(amount) or (name == "memory") != bool(slash):
            raise UsageError(
                f"--price {text}: give memory=AMOUNT/SIZE or CLASS=AMOUNT",
                hint="such as memory=3/16G and nvme=80",
            )
        if name == "memory":
            of_memory = float(amount) / parse_size(size, "--price")
        elif name in _PRICED:
            of_disk[name] = float(amount)
        else:
            raise UsageError(
                f"--price {text}: only memory and classes of disks have prices",
                hint=f"memory, {', '.join(_PRICED)}",
            )
    return Prices(of_memory, of_disk)


def _proof_command(ctx: click.Context) -> str:
    """The command line that writes the scenario, and the one that runs it."""
    words = ["nginx-tune", "size"]
    for option in ctx.command.params:
        value = ctx.params.get(str(option.name))
        if option.name in {"formats", "output"} or value in (None, (), option.get_default(ctx)):
            continue
        name = max(option.opts, key=len)
        for part in value if isinstance(value, tuple) else (value,):
            words += (
                [name] if part is True else [name, f"{part:g}" if isinstance(part, float) else part]
            )
    written = shlex.join([*words, "-f", f"scenario={_PROOF}"])
    return f"{written} && sudo nginx-tune scenario run ./{_PROOF}"
