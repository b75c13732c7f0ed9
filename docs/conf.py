"""Settings of the documentation. Build: sphinx-build --fail-on-warning docs docs/_build/html."""

import sys
from pathlib import Path

import ascribe
from ascribe.steps import hints

sys.path.insert(0, str(Path(__file__).parent / "ext"))

project = "Ascribe"
author = "The Ascribe developers"
copyright = author  # noqa: A001 (the name that Sphinx reads)
release = ascribe.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "generated",
    "install_lines",
    "links",
    "notebooks",
    "reports",
]
exclude_patterns = ["_build", "ext"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_baseurl = f"{hints.DOCS}/" if hints.PUBLISHED else ""
myst_html_meta = {  # what a link to a page shows elsewhere
    "description": "Step-level credit for reinforcement learning of LLM agents",
    "property=og:title": "Ascribe: which step earned the reward?",
    "property=og:image": f"{html_baseurl}_images/report.png",
}

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_attr_annotations = False
napoleon_use_ivar = True

copybutton_exclude = ".linenos, .gp, .go"  # copy what is typed, not what is printed

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/mark.svg"
BLUE, ORANGE = ("#1f66a3", "#6fb1e8"), ("#b85a12", "#f2985a")  # on a light and on a dark page
html_theme_options = {
    f"{scheme}_css_variables": {
        "color-brand-primary": BLUE[place],
        "color-brand-content": BLUE[place],
        "color-brand-visited": BLUE[place],
        "color-api-name": ORANGE[place],
    }
    for place, scheme in enumerate(("light", "dark"))
}
html_title = "Ascribe" if "dev" in release else f"Ascribe {release}"  # a commit is no name
