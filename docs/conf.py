"""Settings of the documentation site; builds without network."""

import sys
from pathlib import Path

from expost import __version__

sys.path.insert(0, str(Path(__file__).parent))

from rooms import write_pages

project = "expost"
release = __version__
author = "the expost authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"expost {release}"
exclude_patterns = ["_build", "notebooks/*.ipynb"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "amsmath"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Docstrings are plain prose with doctest blocks; words in single stars or bars are not markup.
suppress_warnings = ["docutils", "ref.ref", "ref.term", "ref.python", "myst.xref_missing", "autodoc"]


def setup(app):
    """The reference is made of the rooms as they are at build time."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "reference"))
