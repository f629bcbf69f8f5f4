"""Settings of the documentation site; builds without network."""

from expost import __version__

project = "expost"
release = __version__
author = "the expost authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"expost {release}"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "amsmath"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Docstrings are Markdown-flavoured prose with doctest blocks; words in single stars or bars are not markup.
suppress_warnings = ["docutils", "ref.ref", "myst.xref_missing"]
