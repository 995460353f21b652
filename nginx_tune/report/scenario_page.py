"""The page of a scenario: what it teaches, how it is done, what the sources claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nginx_tune.documents.decisions import Setting
from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.scenario import (
    ArmSpec,
    Claim,
    ClaimResult,
    Scenario,
    ScenarioClass,
    Scenarios,
    ScenarioSummary,
)
from nginx_tune.report.load_words import body_text
from nginx_tune.report.markup import markdown_table
from nginx_tune.report.quantities import one_line
from nginx_tune.report.screen import Line, Screen, Table, plain_text
from nginx_tune.report.text import number_text

_STAND_INS = {
    "raw-blocking-accept": "bare processes blocked in accept()",
    "raw-epoll-accept": "bare processes in epoll",
}


def summarise(scenarios: Iterable[Scenario]) -> Scenarios:
    """The list of these: name, title and the rows of the sources that each reproduces."""
    return Scenarios(scenarios=[_summary(scenario) for scenario in scenarios])


def _summary(scenario: Scenario) -> ScenarioSummary:
    rows = {claim.source_row for claim in scenario.claims} - {""}
    return ScenarioSummary(
        name=scenario.name,
        source_rows=sorted(rows, key=lambda row: (row[:1], int(row[1:] or 0))),
        title=scenario.title,
    )


def render_scenario_list(scenarios: Scenarios) -> str:
    """Name, source rows and title of each scenario."""
    return plain_text(scenario_list_screen(scenarios))


def scenario_list_screen(scenarios: Scenarios) -> Screen:
    """The same as a screen."""
    return [[Table(_list(scenarios))]]


def render_scenario_list_markdown(scenarios: Scenarios) -> str:
    """The same as a table in Markdown."""
    return markdown_table(_list(scenarios))


def _list(scenarios: Scenarios) -> list[tuple[str, str, str]]:
    rows = [(one.name, ", ".join(one.source_rows), one.title) for one in scenarios.scenarios]
    return [("scenario", "sources", "title"), *rows]


def render_scenario_page(scenario: Scenario) -> str:
    """The page for a terminal."""
    return "\n".join((scenario_words(scenario), plain_text(scenario_parts(scenario))))


def scenario_words(scenario: Scenario) -> str:
    """The paragraphs of the page: what it is about, and what it teaches."""
    parts = [
        f"{scenario.name}: {one_line(scenario.title)}\n",
        f"{one_line(scenario.description)}\n",
        f"{scenario.learn.strip()}\n" if scenario.learn.strip() else "",
    ]
    return "\n".join(part for part in parts if part)


def scenario_parts(scenario: Scenario) -> Screen:
    """The tables of the page, and how it is run."""
    head = ("source", "claim", "expected", "source's figure")
    claims = [
        (
            c.source_row or "–",
            one_line(c.name),
            expected_text(c),
            one_line(c.source_figure) or "–",
        )
        for c in scenario.claims
    ]
    loads = [(c.name, _load(c)) for c in scenario.classes]
    return [
        [Line("arms", "heading"), Table(_arms(scenario), indent=2, has_head=False)],
        [Line("load", "heading"), Table(loads, indent=2, has_head=False)],
        [Line("claims", "heading"), Table([head, *claims], indent=2)],
        [Line(f"nginx-tune scenario run {scenario.name}")],
    ]


def render_scenario_markdown(scenario: Scenario) -> str:
    """The page as Markdown."""
    lines = [
        f"# {scenario.name}: {one_line(scenario.title)}",
        "",
        one_line(scenario.description),
        "",
        *([scenario.learn.strip(), ""] if scenario.learn.strip() else []),
        (
            f"`nginx-tune scenario run {scenario.name}` runs it in the lab, "
            f"{scenario.pairs} rounds of {number_text(scenario.duration_seconds)} s an arm."
        ),
        "",
        "## Arms",
        "",
        *_table([("arm", "what runs"), *_arms(scenario)]),
        "## Load",
        "",
        *_table([("class", "requests"), *((c.name, _load(c)) for c in scenario.classes)]),
        "## Claims",
        "",
        *_table(
            [
                ("source", "claim", "expected", "source's figure"),
                *(
                    (
                        c.source_row,
                        one_line(c.name),
                        f"`{expected_text(c)}`",
                        one_line(c.source_figure),
                    )
                    for c in scenario.claims
                ),
            ]
        ),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _place(arm: str, against: str, expression: str) -> str:
    """Which arms a claim is about; empty for candidate and baseline."""
    if (arm, against) == ("candidate", "baseline"):
        return ""
    if "ratio(" in expression:
        return f"{arm} against {against}"
    return against if "baseline(" in expression else arm


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    return [_row(head), _row(["---"] * len(head)), *map(_row, body), ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def expected_text(claim: Claim | ClaimResult) -> str:
    """What is expected, with the arms it is about where they are not the usual two."""
    text = one_line(claim.expression if isinstance(claim, Claim) else claim.expected)
    place = _place(claim.arm, claim.against, text)
    text = f"{place}: {text}" if place else text
    text = f"{text}, less than that of “{one_line(claim.less_than)}”" if claim.less_than else text
    return f"fails: {text}" if claim.expect == "fails" else text


def _arms(scenario: Scenario) -> list[tuple[str, str]]:
    specs: list[tuple[str, ArmSpec]] = [
        ("baseline", scenario.baseline),
        ("candidate", scenario.candidate),
        *((arm.name, arm) for arm in scenario.arms),
    ]
    return [(name, _arm(spec)) for name, spec in specs]


def _arm(spec: ArmSpec) -> str:
    if spec.stand_in != "none":
        return _STAND_INS[spec.stand_in]
    base = "the plain configuration" if spec.decisions == "none" else "the recommended one"
    words = [f"nginx {spec.series}, {base}" if spec.series else base]
    words += [_setting(setting) for setting in spec.settings]
    words += [f"sysctl {name}={value}" for name, value in spec.sysctls.items()]
    if spec.reload is not None:
        counts = ", ".join(map(str, spec.reload.worker_processes))
        words.append(f"reloads every {number_text(spec.reload.every_seconds)} s: {counts} workers")
    words += [f"load: {_load(item)}" for item in spec.classes]
    return "; ".join(words)


def _setting(setting: Setting) -> str:
    place = f" in {setting.block}" if setting.block else ""
    return one_line(" ".join([setting.directive, *setting.args]) + place)


_SOURCES = {
    "random": "random files",
    "hot": "one file",
    "memory": "no file",
    "events": "the origin's events",
    "uploads": "bodies to the origin",
}


def _load(item: ScenarioClass) -> str:
    source = _SOURCES[item.source]
    source += f" ({one_line(item.query)})" if item.query else ""
    source += f", {body_text(item.upload)} each" if item.upload else ""
    source += ", each once" if item.once else ""
    where = f" of {item.disk}" if item.disk else ""
    kept = "" if item.keepalive else ", a connection each"
    return f"{source}{where}, {_arrivals(item.arrivals)}{kept}"


def _arrivals(arrivals: Arrivals) -> str:
    if arrivals.kind == "closed":
        pause = arrivals.think_seconds
        mean = ", exponential" if arrivals.gaps == "poisson" else ""
        think = f" with {number_text(pause)} s of pause{mean}" if pause else ""
        return f"{arrivals.users} users{think}"
    return f"{number_text(arrivals.rate_per_second or 0.0)}/s ({arrivals.kind})"
