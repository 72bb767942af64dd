"""The site, made by Sphinx from the Markdown of the repository: `poe docs` writes build/site.

The sources stay where they are, so that links between them work in a checkout too; the root of
the repository is the source folder, and `include_patterns` says what of it is a page. Nothing is
fetched, neither now nor by who reads it: diagrams become SVG here.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import site_reference  # noqa: E402

from coordinator import __version__  # noqa: E402

project = "Consumer-group coordinator"
author = "its contributors"
copyright = author  # Sphinx wants this name.
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.githubpages",
    "sphinx.ext.napoleon",
    "site_directives",
    "site_links",
    "site_reference",
]
root_doc = "deploy/docs/index"
include_patterns = [
    "README.md",
    "tests/unit/client/scripts/README.md",
    "tests/campaigns/fuzz/README.md",
    "tests/simulation/worlds/README.md",
    "CHANGELOG.md",
    ".github/*.md",
    "coordinator/*.md",
    "coordinator/decisions/*.md",
    "deploy/**.md",
    "protos/*.md",
    "timer/*.md",
]
exclude_patterns = ["**/__pycache__", "build", ".venv", ".demo", ".git"]

myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
# Headings are link targets, under the names that a repository's own page gives them.
myst_heading_anchors = 3

# The reference, from docstrings.
default_role = "code"  # Markdown's meaning of `name`.
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_mock_imports = site_reference.missing(site_reference.EXTRAS_PACKAGES)
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
napoleon_custom_sections = ["Source"]
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"{project} {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
html_static_path: list[str] = []
