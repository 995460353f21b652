"""The directives that the sandbox is tried with are all of the table's."""

from __future__ import annotations

from sandbox_cases import FORMS, known_names, read_cases


def test_every_directive_of_the_table_was_tried() -> None:
    cases, tried = read_cases()
    missing = sorted(known_names() - tried)
    assert not missing, f"run python tests/sandbox_parts/sandbox_cases.py NGINX… for {missing[:5]}"
    assert len(cases) >= 1600
    assert {"access_log", "proxy_store", "error_log", "root", "ssl_certificate_key"} <= {
        case.directive for case in cases
    }


def test_every_form_is_taken_by_some_directive() -> None:
    cases, _ = read_cases()
    assert {case.form for case in cases} == set(FORMS)
