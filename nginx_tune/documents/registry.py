"""All documents by their name for ``nginx-tune schema NAME``."""

from nginx_tune.documents.base import Document
from nginx_tune.documents.check import FirstLook
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.described_host import DescribedHost
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Baseline, Findings
from nginx_tune.documents.inspection import Capture, DiskPlan, DiskRun, Doctor
from nginx_tune.documents.lab import Lab, Labs
from nginx_tune.documents.loadplan import LoadPlan
from nginx_tune.documents.measurement import Capacity, Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.plan import History, Plan
from nginx_tune.documents.rehearsal import Rehearsal
from nginx_tune.documents.run import KeptRun, KeptRuns, RunComparison, RunSummary, Validation
from nginx_tune.documents.scenario import (
    ExperimentSpec,
    Scenario,
    ScenarioRun,
    Scenarios,
    SourceRows,
)
from nginx_tune.documents.site import Site
from nginx_tune.documents.sizing import Sizing
from nginx_tune.documents.verdict import Comparison, Verdict
from nginx_tune.documents.workload import Workload

DOCUMENTS: dict[str, type[Document]] = {
    "baseline": Baseline,
    "capacity": Capacity,
    "capture": Capture,
    "check": FirstLook,
    "comparison": Comparison,
    "decisions": Decisions,
    "diskplan": DiskPlan,
    "diskrun": DiskRun,
    "doctor": Doctor,
    "experiment": ExperimentSpec,
    "facts": Facts,
    "findings": Findings,
    "history": History,
    "host": DescribedHost,
    "lab": Lab,
    "labs": Labs,
    "loadplan": LoadPlan,
    "measurement": Measurement,
    "observation": Observation,
    "plan": Plan,
    "rehearsal": Rehearsal,
    "run": KeptRun,
    "run_comparison": RunComparison,
    "run_summary": RunSummary,
    "runs": KeptRuns,
    "scenario": Scenario,
    "scenario_run": ScenarioRun,
    "scenarios": Scenarios,
    "site": Site,
    "sizing": Sizing,
    "source_rows": SourceRows,
    "validation": Validation,
    "verdict": Verdict,
    "workload": Workload,
}
