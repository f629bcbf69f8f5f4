"""A model card or an answer as one HTML page: no scripts, no links to other files, light and dark, on wide and narrow screens."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["CardPage", "PageSection"]

_STYLE = """
:root{color-scheme:light dark;--page:#f5f6f8;--sheet:#fff;--text:#1c2430;--soft:#5b6675;--line:#dde1e7;--mark:#1f5fbf;
--warn:#fff4d6;--warn-line:#d9a92b;--warn-text:#5c4300}
@media (prefers-color-scheme:dark){:root{--page:#14181e;--sheet:#1d232b;--text:#e6eaf0;--soft:#9aa6b5;--line:#343c47;
--mark:#7fb0ff;--warn:#3a2f10;--warn-line:#8a6d1d;--warn-text:#f3dfa6}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;margin:0;padding:1.5rem 1rem 3rem;background:var(--page);
color:var(--text);overflow-wrap:anywhere}
main{max-width:60rem;margin:0 auto}
h1{font-size:1.7rem;line-height:1.2;margin:.2rem 0 1rem}
h1 small{display:block;font-size:.8rem;font-weight:600;letter-spacing:.08em;text-transform:uppercase;color:var(--mark)}
h2{font-size:1.05rem;margin:0 0 .6rem}
section{background:var(--sheet);border:1px solid var(--line);border-radius:.6rem;padding:1rem 1.2rem;margin:0 0 1rem}
dl.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.8rem;margin:0 0 1rem}
dl.facts div{background:var(--sheet);border:1px solid var(--line);border-radius:.6rem;padding:.7rem 1rem}
dl.facts dt{font-size:.8rem;color:var(--soft)}
dl.facts dd{margin:0;font-size:1.1rem;font-weight:600}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;border-top:1px solid var(--line)}
tr:first-child>*{border-top:0}
table.lines th{font-weight:500;color:var(--soft);width:13rem}
table.numbers th{font-size:.85rem;font-weight:600;color:var(--soft)}
table.numbers tr:nth-child(2)>*{border-top:2px solid var(--line)}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}
img{max-width:100%;height:auto;background:#fff;border-radius:.3rem}
ul{margin:.6rem 0 0;padding-left:1.2rem}li{margin:.25rem 0}
.warning{background:var(--warn);border:1px solid var(--warn-line);color:var(--warn-text);border-radius:.6rem;
padding:.6rem 1rem;margin:0 0 1rem;font-weight:500}
@media (max-width:36rem){body{padding:1rem .6rem 2rem}section{padding:.9rem}
table.lines,table.lines tbody,table.lines tr,table.lines th,table.lines td{display:block;width:auto}
table.lines tr{border-top:1px solid var(--line);padding:.35rem 0}table.lines tr:first-child{border-top:0}
table.lines th,table.lines td{border:0;padding:0}table.lines th{font-size:.85rem}
table.numbers,table.numbers tbody{display:block;font-size:.9rem}table.numbers tr{display:flex;flex-wrap:wrap;
border-top:1px solid var(--line);padding:.35rem 0}table.numbers tr:first-child{border-top:0}
table.numbers th,table.numbers td,table.numbers tr:nth-child(2)>*{border:0;padding:0 .4rem 0 0;flex:1 1 4.5rem}
table.numbers tr>:first-child{flex:1 0 100%}table.numbers tr>:last-child{flex:1 1 9rem}}
@media print{body{background:none;padding:0}section,dl.facts div{break-inside:avoid}}
"""


@dataclass(frozen=True)
class PageSection:
    """A part of a page: lines of a label and a text, sentences, and a table of numbers with its head."""

    title: str
    lines: Sequence[tuple[str, str]] = ()
    sentences: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """Cells of the table. All but the first column are numbers."""
    picture: bytes | None = None
    """A PNG file, which becomes a part of the page."""


@dataclass(frozen=True)
class CardPage:
    """The contents of a card as texts, ready to be drawn."""

    title: str
    facts: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    sections: Sequence[PageSection]
    kind: str = "Model card"

    def to_html(self) -> str:
        """Return the page. All texts are escaped."""
        title = html.escape(self.title)
        facts = "".join(f"<div><dt>{html.escape(a)}</dt><dd>{html.escape(b)}</dd></div>" for a, b in self.facts)
        parts = [f"<h1><small>{html.escape(self.kind)}</small>{title}</h1>"]
        parts += [f"<p class='warning'>{html.escape(each)}</p>" for each in self.warnings]
        parts += [f"<dl class='facts'>{facts}</dl>"] if facts else []
        parts += map(_draw_section, self.sections)
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{html.escape(self.kind)}: {title}</title><style>{_STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
        )


def _draw_section(section: PageSection) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    if section.lines:
        rows = (f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in section.lines)
        parts.append(f"<table class='lines'>{''.join(rows)}</table>")
    if section.rows:
        head = _draw_cells("th", section.head)
        body = "".join(_draw_cells("td", each) for each in section.rows)
        parts.append(f"<div class='scroll'><table class='numbers'>{head}{body}</table></div>")
    if section.picture is not None:
        image = base64.b64encode(section.picture).decode()
        parts.append(f"<img alt='{html.escape(section.title)}' src='data:image/png;base64,{image}'>")
    if section.sentences:
        items = "".join(f"<li>{html.escape(each)}</li>" for each in section.sentences)
        parts.append(f"<ul>{items}</ul>")
    return f"<section>{''.join(parts)}</section>"


def _draw_cells(tag: str, cells: Iterable[str]) -> str:
    first, *others = cells
    numbers = "".join(f"<{tag} class='number'>{html.escape(each)}</{tag}>" for each in others)
    return f"<tr><{tag}>{html.escape(first)}</{tag}>{numbers}</tr>"
