"""Documents of each kind that a page shows, small and made by hand, and a reader of pages."""

from html.parser import HTMLParser
from typing import Any

import msgspec

from nginx_tune.documents.base import Document, Unknown
from nginx_tune.documents.decisions import Decision, Decisions, Evidence, Predicted, Setting
from nginx_tune.documents.facts import Dataset, Disk, Facts, Link, Network, Nginx, Storage
from nginx_tune.documents.facts_machine import Listener
from nginx_tune.documents.facts_storage import Curve, CurvePoint, Sweep
from nginx_tune.documents.findings import Finding, Findings, NeedsFacts, NginxTest, Unparsed
from nginx_tune.documents.measured_class import ClassMeasurement, Imbalance
from nginx_tune.documents.measured_server import (
    DiskUse,
    ListenerUse,
    LoopTurn,
    ServerMeasurement,
    ServerSecond,
    WorkerUse,
)
from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.observation import Cause, CauseEvidence, Observation
from nginx_tune.documents.plan import (
    Hunk,
    Plan,
    PlannedFile,
    Refusal,
    ReloadWarning,
    Search,
    SearchCandidate,
)
from nginx_tune.documents.rehearsal import HeldConnections, Phase, Rehearsal, RehearsedReload
from nginx_tune.documents.run import KeptRun, RunSummary, Validation
from nginx_tune.documents.scenario import ClaimResult, PredictionResult, ScenarioRun, VariantText
from nginx_tune.documents.verdict import GateResult
from nginx_tune.documents.workload import LocationShare, LogSummary, Rejected, Traffic, Workload
from nginx_tune.measure.proof.latency import latency_of
from nginx_tune.measure.proof.verdict import judge

RATE = "hot.requests_per_second"


def blocks(pairs: int = 6) -> list[Measurement]:
    """Pairs of blocks: the candidate answers three times as much, in a third of the time."""
    made = []
    for pair in range(pairs):
        for half, (variant, rate) in enumerate((("baseline", 100.0), ("candidate", 300.0))):
            moved = rate * (1 + 0.01 * pair * (half + 1))
            part = ClassMeasurement(
                requests=200,
                requests_per_second=moved,
                response_seconds=latency_of(
                    {round(1e9 * (1 + n / 9) / moved): 1 for n in range(200)}
                ),
                workers={"7": 150, "8": 50},
                worker_requests=Imbalance(
                    workers=3, max_to_mean=2.25, variation=1.0, chi_square=9.0, p_value=0.01
                ),
            )
            series = [
                SeriesPoint(
                    second=second,
                    classes={
                        "hot": ClassSecond(
                            requests=50, errors=2 * (second == pair), p50=1 / moved, p99=9 / moved
                        )
                    },
                )
                for second in range(4)
            ]
            made.append(
                Measurement(
                    variant=variant, number=2 * pair + half, classes={"hot": part}, series=series
                )
            )
    return made


def documents() -> list[Document]:
    """One of each kind that a page shows."""
    measured = blocks()
    verdict = judge(measured, primary_metric=RATE, metrics=["hot.p99"])
    gates = [GateResult(expression="hot.p99 <= 1s", measured=0.5, passed=True, reason="so")]
    variants = [
        VariantText(variant="baseline", nginx_conf="aio off;\n"),
        VariantText(variant="candidate", nginx_conf="aio threads;\n"),
    ]
    validation = Validation(verdict=verdict, variants=variants, measurements=measured)
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
        variants=variants,
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
    hunk = Hunk(
        line=3, before="aio off;", after="aio threads;", decision="d", reason="faster",
        risks=["may overflow"],
    )  # fmt: skip
    file = PlannedFile(
        path="/a.conf", sha256_before="0", sha256_after="1", content=b"", hunks=[hunk]
    )
    plan = Plan(
        conf_path="/a.conf",
        files=[file],
        warnings=[ReloadWarning(effect="loses", text="the cache")],
        refusals=[Refusal(decision="e", setting="sendfile on;", reason="a comment says no")],
        brings=[finding],
        proof=Search(
            answer="candidate",
            name="pools-off",
            reference="recommended",
            primary_metric=RATE,
            candidates=[
                SearchCandidate(
                    name="pools-off",
                    changes=["without aio threads;"],
                    reason="data: 2 GiB",
                    ratio=1.3,
                    low=1.2,
                    high=1.5,
                    level=0.5,
                    regret_ratio=1.0,
                    rounds=4,
                    confirmed=True,
                ),
                SearchCandidate(name="recommended", regret_ratio=1.3, rounds=4, confirmed=True),
                SearchCandidate(name="today"),
            ],
            against_today=verdict,
            against_recommended=verdict,
            runs=40,
            short_seconds=2.0,
            seconds=300.0,
            most_seconds=600.0,
        ),
    )
    reload = RehearsedReload(
        manner="reload",
        outcome="taken",
        requests=90,
        failed={"reset": 10},
        phases=[Phase(name="during", requests=5, failed=1, p50_seconds=0.01)],
        held=[HeldConnections(kind="idle", held=4, lost=1, reasons={"reset": 1})],
        log_examples=["[alert] worker"],
    )
    rehearsal = Rehearsal(conf_path="/a.conf", reloads=[reload], gates=gates, notes=["n"])
    run = KeptRun(summary=summary, result=validation)
    return [
        run, scenario, validation, verdict, measured[0], findings, plan, rehearsal, *of_a_site(),
    ]  # fmt: skip


def of_a_site() -> list[Document]:
    """An observation, facts with a measured disk, a workload and decisions."""
    turns = latency_of({1000 * (n + 1): 1 for n in range(500)})
    loop = LoopTurn(**msgspec.structs.asdict(turns), method="tracefs", arrival_wait_seconds=0.01,
                    arrival_wait_by={"blocked": 0.01})  # fmt: skip
    server = ServerMeasurement(
        workers=[WorkerUse(pid=7, cpu_seconds=1.0, loop_turns=500)],
        loop_turn_seconds=loop,
        disks=[DiskUse(name="sda", utilisation_ratio=0.5, reads_per_second=9.0, below=["md0"])],
        listeners=[ListenerUse(address="0.0.0.0", port=80, drops=2)],
        pool_overflow=3,
        series=[
            ServerSecond(second=n, loop_turn_p99_seconds=0.001 * (n + 1), loop_turn_max_seconds=0.1)
            for n in range(10)
        ],
    )
    cause = Cause(
        id="loop-blocked-on-disk",
        summary="the loop waits",
        confidence="high",
        evidence=[CauseEvidence(metric="m", value=0.5, unit="ratio")],
        not_known=["n"],
        next_command="nginx-tune recommend",
    )
    seen = Observation(
        duration_seconds=10.0, pid=6, nginx_version="1.26.3", worker_processes=1, server=server,
        causes=[cause], flags=["f"], unknown=[Unknown(path="/server/refaults", reason="r")],
    )  # fmt: skip
    points = [
        CurvePoint(depth=depth, reads_per_second=200.0 * depth, p50_seconds=0.004 + depth / 1e4,
                   p99_seconds=0.02 if depth > 1 else None)
        for depth in (1, 2, 4, 8)
    ]  # fmt: skip
    small = Sweep(read_bytes=4096, points=points, knee_depth=4, knee_reason="p99 doubles")
    curve = Curve(read_bytes=131072, points=points, small_reads=small, target="/d", notes=["n"])
    facts = Facts(
        storage=Storage(disks=[Disk(name="sda", depth=32, curve=curve)]),
        network=Network(links=[Link(name="eth0", kind="physical")]),
        nginx=Nginx(product="nginx", version="1.26.3", nginx_version="1.26.3"),
        listeners=[Listener(address="::", port=80, of_nginx=True)],
        datasets=[Dataset(path="/d", files=3, bytes=9)],
        unknown=[Unknown(path="/cpu/model", reason="r")],
    )
    place = LocationShare(
        server="s", location="/a", file="a.conf", line=3, requests_ratio=0.5, bytes_ratio=0.25
    )
    workload = Workload(
        log=LogSummary(format="combined", lines=9, requests=8, span_seconds=7,
                       rejected=[Rejected(reason="time", lines=1)], notes=["n"]),
        traffic=Traffic(methods={"GET": 1.0}, statuses={"200": 1.0}, locations=[place]),
    )  # fmt: skip
    setting = Setting(context="http", directive="aio", args=["threads"])
    deciding = Decision(
        id="thread-pools",
        verdict="enable",
        summary="reads block",
        settings=[setting],
        evidence=[Evidence(fact="disk", value=0.004, unit="s")],
        predicted=[Predicted(metric="ratio(hot.p99)", low=0.1, expected=0.2, high=0.4)],
        flips_when=["w"],
        risks=["r"],
        next_command="nginx-tune validate",
    )
    quiet = Decision(id="sendfile", verdict="keep", summary="as it is")
    return [seen, facts, workload, Decisions(decisions=[deciding, quiet], nginx_choice="c")]


class Page(HTMLParser):
    """What a browser makes of a page: elements with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "wbr":  # where a path may go on, as often as it has slashes
            self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\u00a0", " ")

    def values(self, attribute: str) -> list[Any]:
        """The numbers of an attribute, in their order."""
        return [float(a[attribute] or "nan") for _, a in self.elements if attribute in a]
