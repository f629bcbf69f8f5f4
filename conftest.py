"""Which files a test run passes over: those of extras that are not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/expost/torch/*", "src/expost/audit/torch_*"]
