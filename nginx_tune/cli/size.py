"""``nginx-tune size``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from nginx_tune.cli.deciding import Inputs, deciding_options, read_inputs
from nginx_tune.cli.options import FiniteNumber
from nginx_tune.documents.base import Provenance, encode
from nginx_tune.documents.described_host import parse_size
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.report.terminal.output import output_options, write_result
from nginx_tune.report.terminal.writer import screen_bytes

if TYPE_CHECKING:
    from nginx_tune.decide.model.answers import AnswerGoal
    from nginx_tune.decide.size import HostSizes, Prices
    from nginx_tune.documents.sizing import Sizing

_FORMATS = ("console", "json", "scenario")
_STATISTICS = ("mean", "p50", "p90", "p99", "p999")
_PRICED = ("hdd", "ssd", "nvme", "card", "network", "virtual", "unknown")
_AMOUNT = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_PROOF = "proof.toml"


_BANDWIDTH = re.compile(
    r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,6})?) ?(?P<prefix>[kMGT]?)(?:bit/s|bps)", re.IGNORECASE
)
_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


class Bandwidth(str):
    """A bandwidth as it was typed, such as ``8Gbit/s``."""

    __slots__ = ()

    @property
    def bits_per_second(self) -> float:
        """The bandwidth in bits per second."""
        found = _BANDWIDTH.fullmatch(self)
        if found is None:
            raise AssertionError("Demand takes nothing else for one")
        return float(found["number"]) * _THOUSANDS[found["prefix"].lower()]


class Demand(FiniteNumber):
    """Requests per second, or a bandwidth such as ``8Gbit/s``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The rate or bandwidth from text. Errors: BadParameter."""
        text = str(value).strip()
        if _BANDWIDTH.fullmatch(text):
            return Bandwidth(text)
        if text[-1:].isalpha():
            self.fail(
                f"'{value}': give requests per second, or a bandwidth such as 8Gbit/s", param, ctx
            )
        return super().convert(value, param, ctx)


@click.command()
@deciding_options
@click.option(
    "--objective",
    metavar="EXPR",
    help="Limit on response times, such as 'p99 <= 50ms' or 'hot.p99 <= 5ms'; default: the "
    "workload's, else the capacity of the host.",
)
@click.option(
    "--rate",
    type=Demand(min=0.001, max=1e9),
    metavar="R",
    help="Demand on the host: requests for files per second, or a bandwidth such as 8Gbit/s; "
    "default: the workload's.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="memory=N/SIZE|CLASS=N",
    help="Price of memory (memory=3/16G) or of one disk of a class (nvme=80), in any currency; "
    "may repeat. The table has the named classes.",
)
@output_options(*_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    objective: str | None,
    rate: float | Bandwidth | None,
    prices: tuple[str, ...],
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> None:
    """The request rate that a host can serve, or the memory and disks for a given rate.

    The table has, for each memory size and disk, the requests for files per second within the
    objective, their range, and the resource that limits them. -f scenario writes the nearest host
    as an experiment for the lab.
    """
    from nginx_tune.decide.objectives import time_goal  # noqa: PLC0415  # not for --help
    from nginx_tune.decide.size import SizeRequest, size_hosts  # noqa: PLC0415

    priced = _prices(prices)
    asked = parse_goal(objective) if objective else None
    inputs = read_inputs(ctx, **named)
    inputs.tell()
    provenance: Provenance = "declared"
    if objective is None and (found := time_goal(inputs.workload.objectives)) is not None:
        asked, of_workload = found
        objective, provenance = of_workload.expression, of_workload.provenance
    sizes = size_hosts(
        inputs.facts,
        inputs.workload,
        site=inputs.site,
        request=SizeRequest(
            goal=asked,
            objective=objective or "",
            objective_provenance=provenance,
            asked_per_second=_requests(rate, inputs),
            prices=priced,
        ),
    )
    sizing, scenario = _with_proof(sizes, sizes.sizing(), ctx)
    write_result(
        {
            "console": lambda: _console(sizing, formats, output),
            "json": lambda: encode(sizing),
            "scenario": lambda: _scenario(scenario),
        },
        formats,
        output,
    )


def _requests(asked: float | Bandwidth | None, inputs: Inputs) -> float | None:
    """Requests per second; for a bandwidth, by the mean size of a response."""
    if not isinstance(asked, Bandwidth):
        return asked
    mean = inputs.workload.sizes.mean_bytes
    if not mean:
        raise UsageError("--rate as a bandwidth needs the mean size of an answer (--mean-size)")
    return asked.bits_per_second / 8 / mean


def _console(sizing: Sizing, formats: tuple[str, ...], output: str | None) -> bytes:
    from nginx_tune.report.size import sizing_screen  # noqa: PLC0415

    return screen_bytes(sizing_screen(sizing), formats, output)


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


def parse_goal(text: str) -> AnswerGoal:
    """The latency bound of an objective.

    Errors: UsageError for an objective that is no upper bound on response times.
    """
    from nginx_tune.decide.model.answers import AnswerGoal  # noqa: PLC0415  # not for --help
    from nginx_tune.decide.objectives import FROM_MEMORY  # noqa: PLC0415
    from nginx_tune.measure.proof.expression import parse_expression  # noqa: PLC0415
    from nginx_tune.measure.proof.objective import check_objectives  # noqa: PLC0415

    check_objectives([text])
    expression = parse_expression(text)
    of_class, _, statistic = expression.name.rpartition(".")
    limit = expression.limit
    if statistic not in _STATISTICS or "." in of_class or not isinstance(limit, float | int):
        raise UsageError(
            f"--objective '{text}': the size command predicts only the time to a complete response",
            hint=f"such as 'p99 <= 50ms'; one of {', '.join(_STATISTICS)}",
        )
    if limit <= 0:
        raise UsageError(f"--objective '{text}': a limit must be above 0")
    return AnswerGoal(statistic, float(limit), hits=of_class in FROM_MEMORY)  # type: ignore[arg-type]  # one of them


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
            raise UsageError(f"--price {text}: no such thing", hint=f"memory, {', '.join(_PRICED)}")
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
