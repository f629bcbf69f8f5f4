"""Settings of the documentation site; builds without network."""

import re
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

from expost import __version__

sys.path.insert(0, str(Path(__file__).parent))

import notebook_pages
import reference_pages

project = "expost"
release = __version__
author = "the expost authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
napoleon_google_docstring = False
napoleon_use_rtype = False
html_theme = "furo"
html_title = f"expost {release.partition('+')[0]}"  # without the commit
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["expost.css"]
exclude_patterns = ["_build", "notebooks/*.ipynb"]
# Formulas are drawn by a script that the site brings along. It has its fonts inside, so nothing is fetched.
mathjax_path = "mathjax.js"
mathjax3_config = {"options": {"enableMenu": False}, "svg": {"fontCache": "global"}}
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "amsmath"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Docstrings are plain prose with doctest blocks; words in single stars or bars are not markup.
suppress_warnings = ["docutils", "ref.ref", "ref.term", "ref.python", "autodoc"]


NOWHERE = "expost.names"  # no module: what is there has no source to show
LITERAL = re.compile(r"(``.*?``)")
PROMISES = re.compile(r"(Guarantee|Adjacency|Sensitivity|Accuracy|Numerics|Reference): ")


def list_promises(app, what, name, thing, options, lines):
    """The fixed lines of a mechanism's docstring as a list, one promise a point; a second line belongs to its point."""
    shown, inside = [], False
    for line in lines:
        begins = PROMISES.match(line)
        if begins and not inside:
            shown.append("")
        inside = bool(begins) or (inside and bool(line.strip()))
        if begins:
            shown.append(f"* **{begins[1]}**: {line[begins.end() :]}")
        else:
            shown.append(f"  {line.strip()}" if inside else line)
    lines[:] = shown


def escape_bars(app, what, name, thing, options, lines):
    """Bars are lengths and absolute values, not substitutions; examples and literals stay as they are."""
    example = False
    for place, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = LITERAL.split(line)
            lines[place] = "".join(part if LITERAL.fullmatch(part) else part.replace("|", r"\|") for part in parts)


def leave_out_foreign(app, what, name, thing, skip, options):
    """What a library adds to a class of ours is documented there."""
    return True if str(getattr(thing, "__module__", "")).startswith("matplotlib") else None


def leave_out_sourceless(app, env):
    """Leave out modules without a page of source: the index would link to it."""
    for name in [NOWHERE, *(name for name, entry in env._viewcode_modules.items() if not entry)]:
        env._viewcode_modules.pop(name, None)


def copy_mathjax(app):
    """Copy the script that draws formulas into the static files."""
    static = Path(str(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax")))
    shutil.copyfile(static / "tex-svg-full.js", Path(app.srcdir) / "_static" / "mathjax.js")


def write_pages(app):
    """What is made of the package as it is at build time."""
    reference_pages.write_pages(Path(app.srcdir) / "reference")
    list(notebook_pages.write_pages(Path(app.srcdir) / "notebooks", execute=app.config.execute_notebooks))


def setup(app):
    """Make the reference from the packages, and the notebook pages from a run."""
    app.add_config_value("execute_notebooks", default=True, rebuild="env", types=[bool])
    app.connect("builder-inited", copy_mathjax)
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-skip-member", leave_out_foreign)
    app.connect("autodoc-process-docstring", list_promises)
    app.connect("autodoc-process-docstring", escape_bars)
    if "sphinx.ext.viewcode" in app.extensions:
        # The names of the top package are documented twice: their sources lead back to the page of their package.
        app.connect("viewcode-follow-imported", lambda app, module, _: NOWHERE if module == "expost" else None)
        app.connect("env-check-consistency", leave_out_sourceless)
