"""Whatever /proc and /sys hold, and however a capture was cut: facts, never a crash."""

import contextlib
import inspect
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from fuzzing import changed, fuzzed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded_hosts import NAMES, read_capture
from rows import each_row
from test_captures import nulls
from tiers import draws

from nginx_tune.documents.base import encode
from nginx_tune.documents.inspection import Answer, Capture
from nginx_tune.errors import UsageError
from nginx_tune.host import parse_elf, parse_network, parse_nginx, parse_proc, parse_storage
from nginx_tune.host.recording import redact
from nginx_tune.observe.inspect.inspection import replay


@cache
def capture_of(name: str) -> Capture:
    return read_capture(name)


JUNK = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=30).map(lambda data: data.decode(errors="surrogateescape")),
    st.sampled_from(
        ["", "\0", "-1", "9" * 400, "0-4294967295", "max", "../../..", "/", "\udcff", "1e999", "{}"]
    ),
)
JSON_JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), JUNK),
    lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(JUNK, part, max_size=3)),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> Capture:
    """A recorded host of which some answers are cut, mixed up, nonsense or gone."""
    capture = capture_of(draw(st.sampled_from(NAMES)))
    answers = dict(capture.answers)
    for question in draw(st.lists(st.sampled_from(sorted(answers)), max_size=12, unique=True)):
        value = answers[question].value
        how = draw(st.integers(0, 4))
        if how == 0:
            answers.pop(question)
        elif how == 1:
            answers[question] = Answer(error=draw(JUNK))
        elif how == 2:
            answers[question] = Answer(value=draw(JSON_JUNK))
        elif isinstance(value, str):
            start, end = sorted(draw(st.tuples(*[st.integers(0, len(value))] * 2)))
            answers[question] = Answer(value=value[:start] + draw(JUNK) + value[end:])
        else:
            answers[question] = Answer(value=draw(st.just(answers[draw(st.sampled_from(
                sorted(answers)))].value)))  # fmt: skip
    return Capture(request=capture.request, answers=answers)


@pytest.mark.long
@fuzzed
@settings(max_examples=draws(50, 200), suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_a_damaged_host_gives_facts(capture: Capture) -> None:
    """Or it says in one line what was asked for that is not there."""
    try:
        facts = replay(capture)
    except UsageError as error:
        assert "\n" not in error.message  # noqa: PT017  # either outcome is fine
        return
    data = encode(facts)
    built = json.loads(data)
    assert not set(nulls(built)) - {entry["path"] for entry in built["unknown"]}
    assert all(entry["reason"] for entry in built["unknown"])
    assert encode(replay(capture)) == data


@pytest.mark.long
@fuzzed
@settings(max_examples=draws(30, 100), suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_a_damaged_host_is_redacted_all_the_same(capture: Capture) -> None:
    fit = Capture(
        answers={
            question: answer
            for question, answer in capture.answers.items()
            if not isinstance(answer.value, dict) or "base64" not in answer.value
        }
    )
    once = redact(fit)
    assert redact(once) == once


@st.composite
def cut(draw: st.DrawFn) -> str:
    """An answer of a host, up to some place in it."""
    answers = capture_of("container-nginx").answers
    text = str(answers[draw(st.sampled_from(sorted(answers)))].value)
    return text[: draw(st.integers(0, len(text)))]


def parsers() -> list[Callable[[str], object]]:
    """Every public function of a ``parse_*`` file that takes a text alone."""
    found = [
        one
        for module in (parse_network, parse_nginx, parse_proc, parse_storage)
        for name, one in vars(module).items()
        if name.startswith("parse_")
        and getattr(one, "__module__", "") == module.__name__
        and [p.annotation for p in inspect.signature(one, eval_str=True).parameters.values()]
        == [str]
    ]
    assert len(found) > 30
    return found


@fuzzed
@given(st.one_of(JUNK, cut()))
def test_no_parser_breaks_on_anything(text: str) -> None:
    for parse in parsers():
        parse(text)
    parse_proc.memory_consumers(parse_proc.parse_meminfo(text))
    parse_proc.parse_cmdline(text.encode(errors="surrogatepass"))
    parse_nginx.libc_of([text])
    parse_nginx.parse_title([text])
    parse_storage.mount_of(parse_storage.parse_mountinfo(text), "/srv/x")
    parse_elf.version_texts(text.encode(errors="surrogatepass"))


def _elf() -> bytes:
    """The parts of this Python that are read: the headers, and where they point to."""
    with Path(sys.executable).resolve().open("rb") as file:
        return file.read(4096)


@fuzzed
@given(changed([_elf(), _elf()[:200]]))
def test_a_damaged_program_names_what_it_can(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_elf.parse_elf(lambda at, size: data[at : at + size])


@each_row(
    ("text", "expected"),
    [
        ("   7       0 loop0 1 2 3 4 5 6 7 8 0 1234 99\n", {"loop0": 1234}),
        (" 254 0 vda 47382 340 29698682 60402 38719 10912 16832966 55896 0 16304 123237 20 0 6 0\n",
         {"vda": 16304}),
        ("   8       1 sda1 1 2 3 4\n", {}),
    ],
)  # fmt: skip
def test_busy_time(text: str, expected: dict[str, int]) -> None:
    assert parse_storage.parse_busy_milliseconds(text) == expected


def test_versions_in_a_program() -> None:
    program = (
        b"\x7fELF\0nginx version: openresty/1.27.1.2\n\0built with OpenSSL 3.0.15 3 Sep 2024"
        b" (running with %s)\0configure arguments: --prefix=/opt --with-threads\n\0"
        b"built with SNI support, however, now\0"
    )
    build = parse_nginx.parse_build(parse_elf.version_texts(program))
    assert isinstance(build, parse_nginx.VersionOutput)
    assert (build.product, build.openssl_built) == ("openresty", "OpenSSL 3.0.15 3 Sep 2024")
    assert build.flags == ["--prefix=/opt", "--with-threads"]
