"""Every document by the name that ``nginx-tune schema NAME`` takes."""

from __future__ import annotations

from nginx_tune.documents.base import Document
from nginx_tune.documents.baseline import Baseline
from nginx_tune.documents.capacity import Capacity
from nginx_tune.documents.capture import Capture
from nginx_tune.documents.comparison import Comparison
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.diskplan import DiskPlan, DiskRun
from nginx_tune.documents.doctor import Doctor
from nginx_tune.documents.experiment import ExperimentSpec
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings
from nginx_tune.documents.histogram import Histograms
from nginx_tune.documents.history import History
from nginx_tune.documents.lab import Lab
from nginx_tune.documents.labs import Labs
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.plan import Plan
from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import Run, RunComparison, Runs, RunSummary
from nginx_tune.documents.scenario import Scenario, ScenarioRun, Scenarios
from nginx_tune.documents.site import Site
from nginx_tune.documents.source_rows import SourceRows
from nginx_tune.documents.validation import Validation
from nginx_tune.documents.verdict import Verdict
from nginx_tune.documents.workload import Workload

DOCUMENTS: dict[str, type[Document]] = {
    "baseline": Baseline,
    "capacity": Capacity,
    "capture": Capture,
    "comparison": Comparison,
    "decisions": Decisions,
    "diskplan": DiskPlan,
    "diskrun": DiskRun,
    "doctor": Doctor,
    "experiment": ExperimentSpec,
    "facts": Facts,
    "findings": Findings,
    "histograms": Histograms,
    "history": History,
    "lab": Lab,
    "labs": Labs,
    "loadplan": LoadPlan,
    "measurement": Measurement,
    "observation": Observation,
    "plan": Plan,
    "rehearsal": Rehearsal,
    "run": Run,
    "run_comparison": RunComparison,
    "run_summary": RunSummary,
    "runs": Runs,
    "scenario": Scenario,
    "scenario_run": ScenarioRun,
    "scenarios": Scenarios,
    "site": Site,
    "source_rows": SourceRows,
    "validation": Validation,
    "verdict": Verdict,
    "workload": Workload,
}
