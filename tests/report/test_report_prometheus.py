"""Metrics are what Prometheus' own parser reads."""

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost
from nginx_tune.report.prometheus import (
    MetricFamily,
    MetricSample,
    render_exposition,
    render_findings_prometheus,
)

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: bytes) -> Values:
    families = list(text_string_to_metric_families(text.decode()))
    names = [family.name for family in families]
    assert len(set(names)) == len(names), "each name once"
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def test_findings_are_counted_by_severity_and_rule(tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {} http { server { listen 80; location / { aio threads=absent; } } }")
    found = audit(read_tree(str(conf), LiveHost()), None)
    values = parsed(render_findings_prometheus(found))
    errors = sum(one.severity == "error" for one in found.findings)
    assert errors
    assert values["nginx_tune_audit_findings", (("severity", "error"),)] == errors
    rules = {key: n for key, n in values.items() if key[0] == "nginx_tune_audit_rule_findings"}
    assert sum(rules.values()) == len(found.findings)
    assert values["nginx_tune_audit_rules_without_facts", ()] == len(found.needs_facts)


@given(st.text(), st.floats(), st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_label_value_and_help_come_back(label: str, value: float, text: str) -> None:
    label = label.encode(errors="backslashreplace").decode()
    family = MetricFamily(
        "x", "gauge", text.replace("\r", ""), (MetricSample(value, {"a": label}),)
    )
    ((_, found),) = parsed(render_exposition([family])).items()
    assert found == value or (math.isnan(found) and math.isnan(value))


@each_row("value", [0.1, 1e-9, 123456789.0, 1e300, math.inf, -math.inf])
def test_a_value_comes_back_exactly(value: float) -> None:
    (found,) = parsed(
        render_exposition([MetricFamily("x", "gauge", "h", (MetricSample(value),))])
    ).values()
    assert found == value
