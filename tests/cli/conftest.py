"""Commands in this process, without what takes nearly all time of their decisions."""

from collections.abc import Callable, Iterator

import command_line
import pytest
from situations import without_break_evens


@pytest.fixture
def run_cli() -> Iterator[Callable[..., command_line.Run]]:
    """Run ``nginx-tune``; tests/generate runs it with break-evens."""
    with without_break_evens():
        yield command_line.call
