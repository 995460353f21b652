import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row
from tiers import draws

from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.expression import COMPARE, Expression, parse_expression

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}", fullmatch=True)


@each_row(
    ("text", "source", "name", "operator", "limit", "dimension"),
    [
        ("hot.p99<=50ms", "candidate", "hot.p99", "<=", 0.05, "time"),
        (" hot.p99  <  50 us ", "candidate", "hot.p99", "<", 50e-6, "time"),
        ("hot.p99 < 50µs", "candidate", "hot.p99", "<", 50e-6, "time"),
        ("hot.p99 < 50μs", "candidate", "hot.p99", "<", 50e-6, "time"),
        ("hot.p99 < 0.5", "candidate", "hot.p99", "<", 0.5, None),
        ("baseline(hot.mean) > 2s", "baseline", "hot.mean", ">", 2.0, "time"),
        ("ratio( hot.requests_per_second ) >= 10x", "ratio", "hot.requests_per_second", ">=", 10.0,
         "ratio"),
        ("ratio(memory.p99) <= 10%", "ratio", "memory.p99", "<=", 0.1, "ratio"),
        ("cold.bytes_per_second >= 80 MB/s", "candidate", "cold.bytes_per_second", ">=", 80e6,
         "bytes"),
        ("total.bytes_per_second >= 1.5GiB", "candidate", "total.bytes_per_second", ">=",
         1.5 * 2**30, "bytes"),
        ("hot.requests_per_second > 2k", "candidate", "hot.requests_per_second", ">", 2000.0,
         "count"),
        ("cold.truncated == 0", "candidate", "cold.truncated", "==", 0.0, None),
        ("cold.errors.reset != 1e3", "candidate", "cold.errors.reset", "!=", 1000.0, None),
        ("predicted(ratio(hot.requests_per_second)) >= 10", "predicted",
         "ratio(hot.requests_per_second)", ">=", 10.0, None),
        ("predicted(loop_blocked_ratio) > 50%", "predicted", "loop_blocked_ratio", ">", 0.5,
         "ratio"),
    ],
)  # fmt: skip
def test_reads(
    text: str, source: str, name: str, operator: str, limit: float, dimension: str | None
) -> None:
    expression = parse_expression(text)
    assert (expression.source, expression.name, expression.operator) == (source, name, operator)
    assert expression.limit == pytest.approx(limit)
    assert expression.dimension == dimension
    assert expression.text == text.strip()


def test_reads_a_decision() -> None:
    expression = parse_expression("decision(thread-pools) == enable")
    assert (expression.source, expression.name) == ("decision", "thread-pools")
    assert expression.word == "enable"
    assert expression.metric is None


@each_row(
    ("text", "said"),
    [
        ("", "column 1: expected a metric"),
        ("<= 5", "column 1: expected a metric"),
        ("hot.p99", "column 8: expected one of <="),
        ("hot.p99 = 5", "column 9: expected one of <="),
        ("hot.p99 <=", "column 11: expected a number"),
        ("hot.p99 <= fast", "column 12: expected a number"),
        ("hot.p99 <= -5", "column 12: expected a number"),
        ("hot.p99 <= nan", "column 12: expected a number"),
        ("hot.p99 <= inf", "column 12: expected a number"),
        ("hot.p99 <= 5 parsecs", "column 14: no unit 'parsecs'"),
        ("hot.p99 <= 5ms or so", "column 16: expected the end"),
        ("hot.p99 <= 5ms/s", "column 15: expected the end"),
        ("hot.p99 <= 1e999", "too large"),
        ("rate(hot.p99) < 5", "no function 'rate'"),
        ("ratio(hot.p99 < 5", "column 15: expected ')'"),
        ("ratio() < 5", "column 7: expected a metric"),
        ("ratio(ratio(hot.p99)) < 5", "expected ')'"),
        ("decision(thread-pool) == enable", "no decision 'thread-pool'"),
        ("decision(thread-pools) <= enable", "compared with == or !="),
        ("decision(thread-pools) == on", "not a verdict"),
        ("decision(thread-pools) == enable now", "expected the end"),
        ("predicted(ratio(hot.p99) > 3", "expected ')'"),
        ("x" * 301, "at most 300 characters"),
    ],
)
def test_says_what_is_wrong_and_where(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_expression(text)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@settings(max_examples=draws(50, 200))
@given(text=st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expression = parse_expression(text)
    except UsageError:
        return
    assert expression.operator in COMPARE


@given(
    text=st.lists(
        st.sampled_from(
            ["ratio", "(", ")", "hot.p99", "<=", "==", "5", "ms", " ", "decision", "thread-pools",
             "enable", "predicted", "%", "1e3", "."]
        ),
        max_size=10,
    ).map("".join)
)  # fmt: skip
def test_any_tokens_are_read_or_refused(text: str) -> None:
    try:
        parse_expression(text)
    except UsageError:
        return


@given(
    name=NAMES,
    operator=st.sampled_from(sorted(COMPARE)),
    limit=st.floats(0, 1e100, allow_nan=False),
    source=st.sampled_from(["candidate", "baseline", "ratio"]),
)
def test_what_is_written_is_read(name: str, operator: str, limit: float, source: str) -> None:
    quantity = name if source == "candidate" else f"{source}({name})"
    read = parse_expression(f"{quantity} {operator} {limit!r}")
    assert read == Expression(read.text, source, name, operator, limit=limit)  # type: ignore[arg-type]
