"""Helpers of the tests are imported by their place in the project, e.g. ``tests.distribution.goodness``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hypothesis import settings

# How long an example takes depends on what else the machine does: a timing is never a test.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
