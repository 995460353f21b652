"""Every document: written, read back, and refused when it is something else."""

import json
from pathlib import Path

import jsonschema
import pytest
from rows import each_row
from tiers import ALL

from nginx_tune.cli.inputs import read_document
from nginx_tune.documents.base import decode, encode, json_schema, schema_of
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.registry import DOCUMENTS
from nginx_tune.documents.run import RunSummary, Validation
from nginx_tune.documents.verdict import Verdict
from nginx_tune.errors import ExitStatus, UsageError, worst

SUMMARY = {
    "id": "0123456789",
    "kind": "validate",
    "name": "n",
    "started_at": "2026-11-20T19:00:00+00:00",
    "outcome": "better",
    "primary_metric": "a.p99",
}
TAGGED_SUMMARY = {"schema": schema_of(RunSummary), **SUMMARY}
VERDICT = {"schema": schema_of(Verdict), "outcome": "better", "primary_metric": "a.p99"}
SMALLEST = {
    "rehearsal": {"conf_path": "/etc/nginx/nginx.conf"},
    "comparison": {"outcome": "better", "primary_metric": "a.p99"},
    "diskplan": {"paths": ["/srv/file"], "steps": []},
    "loadplan": {
        "target": {"address": "127.0.0.1", "port": 80},
        "classes": [],
        "duration_seconds": 1.0,
    },
    "experiment": {"candidate": "new.conf", "load": {"classes": []}},
    "plan": {"conf_path": "/etc/nginx/nginx.conf"},
    "run": {
        "summary": TAGGED_SUMMARY,
        "result": {"schema": schema_of(Validation), "verdict": VERDICT},
    },
    "run_comparison": {
        "a": TAGGED_SUMMARY,
        "b": TAGGED_SUMMARY,
        "outcome": "better",
        "primary_metric": "a.p99",
    },
    "run_summary": SUMMARY,
    "scenario": {"name": "n", "title": "t", "lab": {}, "classes": [], "primary_metric": "a.p99"},
    "scenario_run": {
        "name": "n",
        "prediction": {"schema": schema_of(Decisions)},
        "verdict": VERDICT,
    },
    "validation": {"verdict": VERDICT},
    "verdict": {"outcome": "better", "primary_metric": "a.p99"},
}


@each_row("name", sorted(DOCUMENTS))
def test_every_document_reads_back_what_it_wrote_and_fits_its_schema(name: str) -> None:
    kind = DOCUMENTS[name]
    assert schema_of(kind) == f"nginx-tune/{name}/1"
    data = json.dumps({"schema": schema_of(kind), **SMALLEST.get(name, {})}).encode()
    document = decode(kind, data)
    written = encode(document)
    assert encode(decode(kind, written)) == written
    validator = jsonschema.Draft202012Validator(json.loads(json_schema(kind)))
    validator.validate(json.loads(written))
    if ALL:  # against the schema of schemas: most of the time
        validator.check_schema(validator.schema)


@each_row(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not a valid"),
        (b"[]", "not a valid"),
        (b"{}", "found none"),
        (b'{"schema": "nginx-tune/facts/2"}', "found nginx-tune/facts/2"),
        (b'{"schema": "nginx-tune/verdict/1"}', "found nginx-tune/verdict/1"),
        (b'{"schema": "nginx-tune/facts/1", "cpu": {"online": "two"}}', "$.cpu.online"),
        (
            b'{"schema": "nginx-tune/facts/1", "memory": {"total_bytes": -1}}',
            "$.memory.total_bytes",
        ),
    ],
)
def test_what_is_no_facts_document_is_refused_with_one_line(data: bytes, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode(Facts, data, source="host.json")
    assert said in caught.value.message
    assert caught.value.message.startswith("host.json: ")
    assert "\n" not in caught.value.message


def test_a_byte_order_mark_before_a_document_is_passed_over(tmp_path: Path) -> None:
    """Editors on Windows write one (RFC 8259, section 8.1)."""
    path = tmp_path / "facts.json"
    path.write_bytes(b"\xef\xbb\xbf" + encode(Facts()))
    assert read_document(Facts, str(path)) == Facts()


def test_the_worst_status_wins() -> None:
    assert worst(ExitStatus.FOUND, ExitStatus.UNDECIDED) is ExitStatus.UNDECIDED
    assert worst(ExitStatus.CONFIGURATION, ExitStatus.UNDECIDED) is ExitStatus.CONFIGURATION
    assert worst() is ExitStatus.OK
