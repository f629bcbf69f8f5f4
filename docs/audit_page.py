"""Write the table of docs/audit.md from what ``expost audit --long --json`` printed.

Run: expost audit --long --json > docs/audit.json && python docs/audit_page.py
"""

from __future__ import annotations

import json
from pathlib import Path

from expost.audit import AuditRow, AuditVerdict

HERE = Path(__file__).parent
START, END = "<!-- table: made by docs/audit_page.py -->\n", "<!-- end of table -->\n"
HEAD = "| mechanism | claim | largest loss found | pairs | runs | smallest fault it catches | verdict |\n"


def render(rows: list[dict[str, object]]) -> str:
    """Return the table in Markdown, one line per mechanism."""
    audited = [AuditRow(**(row | {"verdict": AuditVerdict(row["verdict"])})) for row in rows]  # type: ignore[arg-type]
    lines = ["| " + " | ".join((f"`{row.mechanism}`", *row.text[1:])) + " |\n" for row in audited]
    return HEAD + "| --- " * HEAD.count(" | ") + "| --- |\n" + "".join(lines)


def main() -> None:
    """Replace the table of the page."""
    page = HERE / "audit.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    table = render(json.loads((HERE / "audit.json").read_text(encoding="utf-8")))
    page.write_text(before + START + "\n" + table + "\n" + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
