"""A check with crossplane of the files of ``generate`` and ``plan``, before they are written.

crossplane is not used if nginx itself tests the files, which is the better check.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from nginx_tune.change.generate.writing import spelled_out
from nginx_tune.conf.directive import Source
from nginx_tune.conf.dumps import Payload, Statement
from nginx_tune.conf.second_reader import (
    AskedChange,
    Disagreement,
    disagreement,
    meant_by,
    unwanted,
)
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.plan import PlannedFile
from nginx_tune.errors import UndecidedError
from nginx_tune.report.text import shown_path

_REPORT = (
    "nothing was written: this is a fault of nginx-tune; with --nginx BIN, nginx tests the file"
)


def check_generated(text: str, emit: Callable[[], str]) -> None:
    """Check that crossplane reads a generated file as intended; ``emit`` generates it again.

    Errors: UndecidedError with the first difference.
    """
    with spelled_out():
        meant = meant_by(emit())
    read = _reading(text.encode())
    if meant is None or read is None:
        raise UndecidedError("nginx.conf: crossplane cannot read what was generated", hint=_REPORT)
    _compare("nginx.conf", meant, read)


def check_planned(file: PlannedFile, old: bytes, decisions: Sequence[Decision]) -> bool:
    """True if crossplane reads a planned file as intended; false if it cannot judge.

    It cannot judge if it already reads the operator's current file differently from nginx.
    Errors: UndecidedError with the first difference.
    """
    name = shown_path(file.path)
    before, after = (meant_by(Source.decode(name, content).text) for content in (old, file.content))
    stood = _reading(old)
    if before is None or stood is None or disagreement(before, stood) is not None:
        return False
    read = _reading(file.content)
    if after is None or read is None:
        raise UndecidedError(f"{name}: crossplane cannot read the change", hint=_REPORT)
    _compare(name, after, read)
    _refuse(name, unwanted(stood, read, _wanted(file, decisions)))
    return True


def _wanted(file: PlannedFile, decisions: Sequence[Decision]) -> AskedChange:
    asking = {hunk.decision for hunk in file.hunks}
    settings: dict[str, list[Sequence[str]]] = {}
    for decision in decisions:
        for setting in decision.settings if decision.id in asking else ():
            for name, *args in ([setting.directive, *setting.args], *setting.lines):
                settings.setdefault(name, []).append(args)
    rules = asking - {decision.id for decision in decisions}
    return AskedChange(
        settings, "\n".join(hunk.after for hunk in file.hunks if hunk.decision in rules)
    )


def _compare(name: str, meant: Sequence[Statement], read: Sequence[Statement]) -> None:
    _refuse(name, disagreement(meant, read))


def _refuse(name: str, found: Disagreement | None) -> None:
    if found is not None:
        place = f"{name}:{found.line}" if found.line else name
        raise UndecidedError(
            f"{place}: crossplane reads it differently than intended: {found.what}", hint=_REPORT
        )


def _reading(data: bytes) -> list[Statement] | None:
    """The statements of a file as crossplane reads them; None if it cannot."""
    import crossplane  # noqa: PLC0415  # 24 ms

    with tempfile.TemporaryDirectory(prefix="nginx-tune-") as folder:
        path = Path(folder) / "nginx.conf"
        path.write_bytes(data)
        found = crossplane.parse(str(path), single=True, check_ctx=False, check_args=False)
    payload = msgspec.convert(found, Payload)
    return None if payload.errors else payload.config[0].parsed
