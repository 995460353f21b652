"""A capture without the secrets that its host told."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.capture import Answer, Capture, Request
from nginx_tune.host.redaction import redact_answers


def redact(capture: Capture) -> Capture:
    """The capture without secrets; doing it twice changes nothing more."""
    answers, request = redact_answers(
        msgspec.to_builtins(capture.answers), msgspec.to_builtins(capture.request)
    )
    return msgspec.structs.replace(
        capture,
        request=msgspec.convert(request, Request),
        answers=msgspec.convert(answers, dict[str, Answer]),
    )
