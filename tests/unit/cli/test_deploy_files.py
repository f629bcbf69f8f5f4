"""The files for servers parse, and name commands, options, routes and files that exist."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from expost.cli import app

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGES = [ROOT / "docs" / "howto" / "deploy.md", ROOT / "docs" / "howto" / "serve-analysts.md"]


def parse_command(words: list[str]) -> dict[str, Any]:
    """Parse the words after ``expost`` without running them; return the values of the options."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    with command.make_context(command.name, list(words)) as context:
        values: dict[str, Any] = context.params
    return values


def read_dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def read_unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read(DEPLOY / "expost.service", encoding="utf-8")
    return parser


def page_commands(page: Path) -> list[str]:
    """Return every command line of ours in a page's shell blocks, also those inside other commands."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    found = re.findall(r"(?:^|[ (/])expost ((?:ledger|token|serve) [^)\n]*)", "\n".join(blocks), re.M)
    return [line.split('"')[0].split("|")[0].strip() for line in found]


def test_the_image_runs_a_command_that_exists_as_a_user_without_rights() -> None:
    instructions = read_dockerfile()
    given = dict(instructions)

    assert json.loads(given["ENTRYPOINT"]) == ["expost"]
    values = parse_command(json.loads(given["CMD"]))
    assert values["host"] == "0.0.0.0" and str(values["settings"]).startswith(given["VOLUME"])
    assert given["EXPOSE"] == str(values["port"])
    assert given["USER"] == "10001:10001"
    assert [name for name, _ in instructions].index("USER") > max(
        number for number, (name, _) in enumerate(instructions) if name in ("RUN", "COPY")
    )
    for name, rest in instructions:
        if name == "COPY" and "--from" not in rest:
            assert all((ROOT / each).exists() for each in rest.split()[:-1]), rest
    extras = re.findall(r'"\.\[(.*?)\]"', given["RUN"] + "".join(rest for _, rest in instructions))
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert extras and all(f"\n{extra} = [" in declared for each in extras for extra in each.split(","))


def test_the_compose_file_starts_several_workers_on_a_healthy_database() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    service, database = services["service"], services["database"]

    assert parse_command(service["command"])["workers"] == 4
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "10001:10001"
    assert service["depends_on"]["database"]["condition"] == "service_healthy" and database["healthcheck"]["test"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]) and "ports" not in database
    folders = [volume.split(":")[0] for each in (service, database) for volume in each["volumes"]]
    assert all("." not in Path(folder).name for folder in folders)  # folders: a single mounted file is refused


def test_the_unit_starts_a_command_that_exists_and_may_write_to_one_folder() -> None:
    unit = read_unit()["Service"]
    program, *words = shlex.split(unit["ExecStart"])

    assert Path(program).name == "expost"
    parse_command(words)
    assert unit["ProtectSystem"] == "strict" and unit["NoNewPrivileges"] == "yes" and unit["User"] == "expost"
    assert unit["WorkingDirectory"] == f"/var/lib/{unit['StateDirectory']}" and unit["LimitCORE"] == "0"


def test_the_reverse_proxy_passes_on_to_the_port_of_the_service_and_keeps_no_times() -> None:
    text = re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))

    assert text.count("{") == text.count("}")
    statements = [part.strip() for part in re.split(r"[{};]", text) if part.strip()]
    assert f"server 127.0.0.1:{dict(read_dockerfile())['EXPOSE']}" in statements
    assert "access_log off" in statements and "proxy_next_upstream off" in statements


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "nginx.conf"])
def test_health_checks_name_routes_of_the_service(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    named = set(re.findall(r"127\.0\.0\.1:8000(/\w+)", text)) | {
        f"/{each}" for group in re.findall(r"\^/\((.*?)\)\$", text) for each in group.split("|")
    }
    source = (ROOT / "src" / "expost" / "service" / "http_app.py").read_text(encoding="utf-8")

    assert named and all(f'@app.get("{route}"' in source for route in named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_parses(page: Path) -> None:
    lines = page_commands(page)

    assert len(lines) >= 4
    for line in lines:
        words = shlex.split(line)
        parse_command(words)
