"""Documents of each kind that a page shows, small and made by hand, and a reader of pages."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from nginx_tune.documents.base import Document
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.findings import Finding, Findings, NeedsFacts, NginxTest, Unparsed
from nginx_tune.documents.measured_class import ClassMeasurement
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.plan import Hunk, Plan, PlannedFile, Refusal, ReloadWarning
from nginx_tune.documents.rehearsal import HeldConnections, Phase, Rehearsal, Turnover
from nginx_tune.documents.run import Run, RunSummary
from nginx_tune.documents.scenario import ArmText, ClaimResult, PredictionResult, ScenarioRun
from nginx_tune.documents.validation import Validation
from nginx_tune.documents.verdict import GateResult
from nginx_tune.prove.tally import latency_of
from nginx_tune.prove.verdict import judge

RATE = "hot.requests_per_second"


def blocks(pairs: int = 6) -> list[Measurement]:
    """Pairs of blocks: the candidate answers three times as much, in a third of the time."""
    made = []
    for pair in range(pairs):
        for half, (arm, rate) in enumerate((("baseline", 100.0), ("candidate", 300.0))):
            moved = rate * (1 + 0.01 * pair * (half + 1))
            part = ClassMeasurement(
                requests=200,
                requests_per_second=moved,
                response_seconds=latency_of(
                    {round(1e9 * (1 + n / 9) / moved): 1 for n in range(200)}
                ),
            )
            made.append(Measurement(arm=arm, block=2 * pair + half, classes={"hot": part}))
    return made


def documents() -> list[Document]:
    """One of each kind that a page shows."""
    measured = blocks()
    verdict = judge(measured, primary_metric=RATE, metrics=["hot.p99"])
    gates = [GateResult(expression="hot.p99 <= 1s", measured=0.5, passed=True, reason="so")]
    arms = [
        ArmText(arm="baseline", nginx_conf="aio off;\n"),
        ArmText(arm="candidate", nginx_conf="aio threads;\n"),
    ]
    validation = Validation(verdict=verdict, arms=arms, measurements=measured)
    predicted = PredictionResult(
        decision="thread-pools",
        metric=f"ratio({RATE})",
        low=2.0,
        expected=2.5,
        high=4.0,
        source_figure="9x",
        measured=3.0,
        measured_low=2.9,
        measured_high=3.1,
        inside=True,
    )
    claim = ClaimResult(
        name="more", source_row="A1", expected=f"ratio({RATE}) >= 2", source_figure="9x",
        measured=3.0, held=True,
    )  # fmt: skip
    scenario = ScenarioRun(
        name="thread-pools",
        prediction=Decisions(),
        predictions=[predicted],
        claims=[claim],
        verdict=verdict,
        arms=arms,
        measurements=measured,
    )
    summary = RunSummary(
        id="0123456789", kind="validate", name="new.conf", started_at="2026-01-02T03:04:05+00:00",
        outcome="better", primary_metric=RATE,
    )  # fmt: skip
    finding = Finding(
        rule="r", severity="error", file="a.conf", line=3, message="m", why="w", fix="f"
    )
    findings = Findings(
        findings=[finding],
        needs_facts=[NeedsFacts(rule="q", facts=["cpu"], how="nginx-tune inspect")],
        files_parsed=["a.conf"],
        files_unparsed=[Unparsed(file="b.conf", line=2, reason="cut off")],
        nginx_test=NginxTest(accepted=False, messages=["[emerg] no"]),
    )
    hunk = Hunk(line=3, before="aio off;", after="aio threads;", decision="d", reason="faster")
    file = PlannedFile(
        path="/a.conf", sha256_before="0", sha256_after="1", content=b"x", hunks=[hunk]
    )
    plan = Plan(
        conf_path="/a.conf",
        files=[file],
        warnings=[ReloadWarning(effect="loses", text="the cache")],
        refusals=[Refusal(decision="e", setting="sendfile on;", reason="a comment says no")],
        brings=[finding],
    )
    turnover = Turnover(
        manner="reload",
        outcome="taken",
        requests=90,
        failed={"reset": 10},
        phases=[Phase(name="during", requests=5, failed=1, p50_seconds=0.01)],
        held=[HeldConnections(kind="idle", held=4, lost=1, reasons={"reset": 1})],
        log_examples=["[alert] worker"],
    )
    rehearsal = Rehearsal(conf_path="/a.conf", turnovers=[turnover], gates=gates, notes=["n"])
    run = Run(summary=summary, result=validation)
    return [run, scenario, validation, verdict, measured[0], findings, plan, rehearsal]


class Page(HTMLParser):
    """What a browser makes of a page: elements with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, attribute: str) -> list[Any]:
        """The numbers of an attribute, in their order."""
        return [float(a[attribute] or "nan") for _, a in self.elements if attribute in a]
