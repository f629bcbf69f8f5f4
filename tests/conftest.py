"""Helpers of the tests are imported by their place in the project, e.g. ``tests.distribution.goodness``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
