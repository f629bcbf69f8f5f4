import json
import subprocess
import sys


def expost(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "expost", *words], capture_output=True, text=True)


def test_an_error_prints_its_sentence_code_and_cost_and_sets_the_exit_code() -> None:
    result = expost("ledger", "show", "no-such.ledger")

    assert result.returncode == 2
    assert "invalid_request" in result.stderr
    assert "Expected a ledger file that exists" in result.stderr
    assert "nothing spent" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_for_machines_is_json() -> None:
    result = expost("ledger", "show", "no-such.ledger", "--json")

    assert json.loads(result.stdout)["error"] == "invalid_request"
    assert result.returncode == 2


def test_the_version_is_the_packages() -> None:
    assert expost("--version").stdout.strip() == "0.1.0"
