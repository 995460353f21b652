"""Scenarios as text: their list, a scenario's page, the rows of the source texts, and a run.

A run shows our figures beside the source's and the predictions, then the verdict.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from nginx_tune.documents.decisions import Predicted, Setting
from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.scenario import (
    Claim,
    ClaimResult,
    PredictionResult,
    Scenario,
    ScenarioClass,
    ScenarioRun,
    Scenarios,
    ScenarioSummary,
    SourceRow,
    SourceRows,
    VariantCause,
    VariantSpec,
)
from nginx_tune.documents.units import plural
from nginx_tune.report.quantities import measured_text, predicted_text
from nginx_tune.report.screen import Line, Screen, ScreenBlock, ScreenPart, Table, plain_text
from nginx_tune.report.text import markdown_table, number_text, one_line
from nginx_tune.report.verdict import environment_block, particulars, verdict_sentence

_STAND_INS = {
    "raw-blocking-accept": "bare processes blocked in accept()",
    "raw-epoll-accept": "bare processes in epoll",
}


def summarise(scenarios: Iterable[Scenario]) -> Scenarios:
    """The list of scenarios: name, title and the source rows that each reproduces."""
    return Scenarios(scenarios=[_summary(scenario) for scenario in scenarios])


def _summary(scenario: Scenario) -> ScenarioSummary:
    rows = {claim.source_row for claim in scenario.claims} - {""}
    return ScenarioSummary(
        name=scenario.name,
        source_rows=sorted(rows, key=lambda row: (row[:1], int(row[1:] or 0))),
        title=scenario.title,
    )


def render_scenario_list(scenarios: Scenarios) -> str:
    """The list as text: name, source rows and title of each scenario."""
    return plain_text(scenario_list_screen(scenarios))


def scenario_list_screen(scenarios: Scenarios) -> Screen:
    """The list of scenarios as a screen."""
    return [[Table(_list(scenarios))]]


def _list(scenarios: Scenarios) -> list[tuple[str, str, str]]:
    rows = [
        (scenario.name, ", ".join(scenario.source_rows), scenario.title)
        for scenario in scenarios.scenarios
    ]
    return [("scenario", "sources", "title"), *rows]


def scenario_words(scenario: Scenario) -> str:
    """The paragraphs of the page: its subject and its lesson."""
    parts = [
        f"{scenario.name}: {one_line(scenario.title)}\n",
        f"{one_line(scenario.description)}\n",
        f"{scenario.learn.strip()}\n" if scenario.learn.strip() else "",
    ]
    return "\n".join(part for part in parts if part)


def scenario_parts(scenario: Scenario) -> Screen:
    """The tables of the page, and the command that runs the scenario."""
    head = ("source", "claim", "expected", "source's figure")
    claims = [
        (c.source_row or "–", one_line(c.name), expected_text(c), one_line(c.source_figure) or "–")
        for c in scenario.claims
    ]
    loads = [(c.name, _load(c)) for c in scenario.classes]
    return [
        [Line("variants", "heading"), Table(_variants(scenario), indent=2, has_head=False)],
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
            f"{scenario.pairs} rounds of {number_text(scenario.duration_seconds)} s a variant."
        ),
        "",
        "## Variants",
        "",
        *_table([("variant", "what runs"), *_variants(scenario)]),
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


def _place(variant: str, against: str, expression: str) -> str:
    """The variants in a claim; empty if they are candidate and baseline."""
    if (variant, against) == ("candidate", "baseline"):
        return ""
    if "ratio(" in expression:
        return f"{variant} against {against}"
    return against if "baseline(" in expression else variant


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    return [_row(head), _row(["---"] * len(head)), *map(_row, body), ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def expected_text(claim: Claim | ClaimResult) -> str:
    """The expectation, with its variants if they are not candidate and baseline."""
    text = one_line(claim.expression if isinstance(claim, Claim) else claim.expected)
    place = _place(claim.variant, claim.against, text)
    text = f"{place}: {text}" if place else text
    text = f"{text}, less than that of “{one_line(claim.less_than)}”" if claim.less_than else text
    return f"fails: {text}" if claim.expect == "fails" else text


def _variants(scenario: Scenario) -> list[tuple[str, str]]:
    specs: list[tuple[str, VariantSpec]] = [
        ("baseline", scenario.baseline),
        ("candidate", scenario.candidate),
        *((variant.name, variant) for variant in scenario.variants),
    ]
    return [(name, _variant(spec)) for name, spec in specs]


def _variant(spec: VariantSpec) -> str:
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


_SOURCES = {"random": "random files", "hot": "one file", "memory": "no file"}


def _load(item: ScenarioClass) -> str:
    source = _SOURCES[item.source]
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


_HEAD = ("row", "fact", "source", "shown", "by")


def source_rows_screen(rows: SourceRows) -> Screen:
    """A count of the rows that are shown, then the table, for a terminal of any width."""
    cells = [(row.row, row.fact, row.figure, row.shown, _by(row)) for row in rows.rows]
    first, *others = _rows_summary(rows).splitlines()
    return [
        [Line(first, "answer"), *(Line(text, "note") for text in others)],
        [Table([_HEAD, *cells])],
    ]


def render_source_rows_markdown(rows: SourceRows) -> str:
    """The source rows as a table in Markdown, with every claim."""
    lines = [(row.row, row.fact, row.figure, row.shown, _by(row, claims=True)) for row in rows.rows]
    return markdown_table([_HEAD, *lines]) + "\n" + _rows_summary(rows)


def _by(row: SourceRow, *, claims: bool = False) -> str:
    """The evidence for a row: scenarios with their claims, set-ups, commands and the gaps."""
    parts = []
    for name in row.scenarios:
        of_it = [claim.name for claim in row.claims if claim.scenario == name]
        said = f"“{'”, “'.join(of_it)}”" if claims else plural(len(of_it), "claim")
        parts.append(f"{name}: {said}" if claims else f"{name} ({said})")
    if row.set_up:
        parts.append(f"set-up of {', '.join(row.set_up)}")
    parts += row.commands
    text = "; ".join(parts)
    return f"{text}. {row.missing}" if row.missing and text else text or row.missing


def _rows_summary(rows: SourceRows) -> str:
    shown = Counter(row.shown for row in rows.rows)
    text = (
        f"{len(rows.rows)} rows: {shown['yes']} shown, {shown['part']} in part, {shown['no']} not\n"
    )
    if not rows.claims:
        return text
    left = sum(len(scenario.claims) for scenario in rows.untried)
    text += f"{rows.claims - left} of {plural(rows.claims, 'claim')} can be tried on this host\n"
    by_reason: dict[str, list[str]] = {}
    for scenario in rows.untried:
        by_reason.setdefault(scenario.reason, []).append(
            f"{scenario.scenario} ({len(scenario.claims)})"
        )
    return text + "".join(f"{why}: {', '.join(names)}\n" for why, names in by_reason.items())


_SILENT = ("keep", "not_applicable", "not_enough_evidence")
"""Verdicts that predict nothing."""


def scenario_screen(run: ScenarioRun) -> Screen:
    """The answer in a sentence, the claims, the predictions, then the verdict and its basis."""
    return [
        [Line(scenario_sentence(run), "answer")],
        _claims(run.claims, judged=is_judged(run)),
        *_predictions(run),
        [
            Line(f"{one_line(variant.variant)} left out: {one_line(variant.left_out)}", "warning")
            for variant in run.variants
            if variant.left_out
        ],
        *particulars(run.verdict),
        _causes(run.causes),
        environment_block(run.verdict),
    ]


def scenario_sentence(run: ScenarioRun) -> str:
    """One sentence that can be quoted: the verdict, and the number of claims that held."""
    shown = [claim for claim in run.claims if not claim.left_out]
    held = sum(claim.held for claim in shown)
    if not shown:
        return verdict_sentence(run.verdict)
    if not is_judged(run):
        claims = f"interrupted: {plural(len(shown), 'claim')} not judged"
        return f"{one_line(run.name)}: {claims}. {verdict_sentence(run.verdict)}"
    if held == len(shown):
        claims = f"all {held} claims hold" if held > 1 else "the claim holds"
    else:
        claims = f"{held} of {len(shown)} claims hold"
    if len(shown) < len(run.claims):
        claims += f", {len(run.claims) - len(shown)} could not be tried here"
    predicted = f"; {outside}" if (outside := count_outside(run)) else ""
    return f"{one_line(run.name)}: {claims}{predicted}. {verdict_sentence(run.verdict)}"


def is_judged(run: ScenarioRun) -> bool:
    """True if there was something to judge; false if interrupted before the first pair."""
    return run.verdict.stopped != "interrupted" or run.verdict.environment.pairs > 0


def count_outside(run: ScenarioRun) -> str:
    """``2 of 5 predictions lie outside their range``; empty if no prediction was judged."""
    judged = [prediction for prediction in run.predictions if prediction.inside is not None]
    outside = sum(not prediction.inside for prediction in judged)
    if not judged:
        return ""
    if outside:
        return f"{outside} of {plural(len(judged), 'prediction')} outside the stated range"
    return f"{plural(len(judged), 'prediction')} inside the stated range"


def _predictions(run: ScenarioRun) -> Screen:
    """The predictions made before the run, each beside the source's figure and the measurement."""
    shown = [prediction for prediction in run.predictions if prediction.measured is not None]
    held = {(prediction.decision, prediction.metric) for prediction in shown}
    decided: list[ScreenPart] = []
    for decision in run.prediction.decisions:
        if decision.predicted or decision.verdict not in _SILENT:
            said = f"{decision.id}: {decision.verdict} – {one_line(decision.summary)}"
            decided.append(Line(said, "note", indent=2))
        rest = [
            prediction
            for prediction in decision.predicted
            if (decision.id, prediction.metric) not in held
        ]
        if rest:
            said = f"not measured: {'; '.join(map(_predicted, rest))}"
            decided.append(Line(said, "note", indent=4))
    head = ("predicted", "expected (range)", "source's figure", "measured", "")
    rows = [head, *(_prediction_row(prediction) for prediction in shown)]
    table = [Table(rows, indent=2)] if shown else []
    heading = Line("predicted before the run", "heading")
    return [[heading, *table, *decided]] if table or decided else []


def _predicted(one: Predicted) -> str:
    low, expected, high = (
        one_line(predicted_text(one.metric, value, one.unit))
        for value in (one.low, one.expected, one.high)
    )
    return f"{one_line(one.metric)} = {expected} ({_span(low, high)})"


def _span(low: str, high: str) -> str:
    return f"{low} – {high}" if " " in low + high else f"{low}–{high}"


def _prediction_row(one: PredictionResult) -> tuple[str, str, str, str, str]:
    text = partial(predicted_text, one.metric)
    place = "" if one.variant == "candidate" else f"{one_line(one.variant)}: "
    low, high = (text(value).removesuffix("×") for value in (one.low, one.high))
    measured = text(one.measured or 0.0)
    if one.measured_low is not None and one.measured_high is not None:
        bounds = (one.measured_low, one.measured_high)
        measured += f" [{_span(*(text(v).removesuffix('×') for v in bounds))}]"
    return (
        place + one_line(one.metric),
        f"{text(one.expected)} ({_span(low, high)})",
        one_line(one.source_figure) or "–",
        measured,
        "inside" if one.inside else "OUTSIDE",
    )


def _causes(causes: list[VariantCause]) -> ScreenBlock:
    """The causes found in each variant's server; unknown causes are only in the document."""
    lines: list[Line] = []
    quiet = []
    for cause in causes:
        if cause.cause.id == "not-enough-evidence":
            continue
        if cause.cause.id == "nothing-found":
            quiet.append(one_line(cause.variant))
            continue
        seen = f"{cause.runs} of {cause.of_runs} runs"
        lines.append(Line(f"{one_line(cause.variant)}: {cause.cause.id} ({seen})", indent=2))
        lines.append(Line(one_line(cause.cause.summary), indent=4))
    if quiet:
        lines.append(Line(f"nothing found: {', '.join(quiet)}", indent=2))
    return [Line("what the server showed", "heading"), *lines] if lines else []


def _held(claim: ClaimResult) -> str:
    if claim.left_out:
        return "not tried"
    word = "held" if claim.held else "NOT HELD"
    agreed = claim.rounds_held if claim.held else claim.rounds - claim.rounds_held
    return word if agreed == claim.rounds else f"{word}; held in {_of(claim)} rounds"


def _of(claim: ClaimResult) -> str:
    return f"{claim.rounds_held} of {claim.rounds}"


def _claims(claims: list[ClaimResult], *, judged: bool) -> ScreenBlock:
    if not claims:
        return []
    rows = [("source", "claim", "expected", "source's figure", "measured", "")]
    for claim in claims:
        measured = measured_text(claim.expected, claim.measured)
        if claim.measured is None and claim.reason:
            measured = one_line(claim.reason)
        rows.append(
            (
                one_line(claim.source_row) or "–",
                one_line(claim.name),
                expected_text(claim),
                one_line(claim.source_figure) or "–",
                measured,
                _held(claim) if judged else "not judged",
            )
        )
    return [Line("claims", "heading"), Table(rows, indent=2)]
