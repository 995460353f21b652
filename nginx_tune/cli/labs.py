"""``--lab SPEC`` and ``--scale``: read what they name."""

from __future__ import annotations

from pathlib import Path

from nginx_tune.cli.inputs import read_document, read_toml
from nginx_tune.documents.facts import Facts
from nginx_tune.errors import UsageError, name_meant
from nginx_tune.nginx.lab.spec import CLASSES, LabPlan, plan_of_class, plan_of_facts, plan_of_tables


def read_lab_plan(
    spec: str | None, scale: float | None, *, replays: bool = False
) -> LabPlan | None:
    """The plan of a class by its name, of a TOML file or of a facts file; None for no lab.

    ``replays``: the lab's files are those of a manifest, which any lab can have fewer of.
    Errors: UsageError for a file that is neither, and for a scale of nothing.
    """
    is_file = spec is not None and spec not in CLASSES
    is_facts = is_file and not str(spec).endswith(".toml")
    if scale is not None and not is_facts and not (replays and spec is not None):
        raise UsageError(
            "--scale goes with --lab FACTS, or with --manifest and any lab",
            hint="name a facts file with --lab",
        )
    if spec is None:
        return None
    if not is_file:
        return plan_of_class(spec)
    if spec.endswith(".toml"):
        return plan_of_tables(read_toml(Path(spec)), spec)
    if not (spec.endswith(".json") or "/" in spec or Path(spec).exists()):
        raise UsageError(
            f"no lab '{spec}'",
            hint=name_meant(spec, CLASSES)
            or f"one of {', '.join(CLASSES)}, a TOML file or a facts file",
        )
    return plan_of_facts(read_document(Facts, spec), scale)
