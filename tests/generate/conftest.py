"""What tests with a real nginx share; the helpers of tests/audit are at hand."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audit"))
