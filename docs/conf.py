"""The site of these pages, built by `make docs`. Its source is the repository's root."""  # noqa: INP001  # Sphinx reads it by its path

import mirrortest

project = "mirrortest"
author = "The mirrortest authors"
release = version = mirrortest.__version__

extensions = ["myst_parser"]
root_doc = "docs/index"
# Links are those of the repository: pages outside docs/ are pages of the site, too.
include_patterns = [
    "docs/**",
    "*.md",
    "deploy/*.md",
    "helm/mirrortest/*.md",
]
exclude_patterns = ["README.md"]
suppress_warnings = ["myst.header"]  # the chart's README begins at its own level

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"mirrortest {release}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
# Colours and fonts are the theme's and the system's: nothing is loaded from elsewhere.
html_theme_options = {"navigation_with_keys": True}
