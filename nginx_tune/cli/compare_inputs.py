"""The inputs of ``compare``: stored runs, observations or measurements, all of one kind."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.cli.inputs import decode_one_of, read_bytes
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.run import Run
from nginx_tune.errors import UsageError
from nginx_tune.experiment.runs import is_run_name, read_run

Compared = Observation | Measurement | Run
_NOUNS: dict[type[Compared], str] = {
    Observation: "an observation",
    Measurement: "a measurement",
    Run: "a stored run",
}


def read_alike(names: Sequence[str]) -> list[Compared]:
    """The documents in files (``-``: standard input), or the stored runs of ids.

    Errors: UsageError for one that cannot be read, and where they are of two kinds.
    """
    documents = [_read(name) for name in names]
    for name, one in zip(names, documents, strict=True):
        if type(one) is not type(documents[0]):
            raise UsageError(
                f"{names[0]} is {_NOUNS[type(documents[0])]} and {name} is {_NOUNS[type(one)]}: "
                "documents of two kinds cannot be compared"
            )
    return documents


def _read(name: str) -> Compared:
    if is_run_name(name):
        return read_run(name)
    return decode_one_of(
        tuple(_NOUNS),
        read_bytes(name),
        source="standard input" if name == "-" else name,
        refusal="which cannot be compared",
        hint="compare takes observations, measurements and stored runs",
    )
