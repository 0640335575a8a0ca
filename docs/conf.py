"""Configuration of the site: python -m sphinx -j 2 -W --keep-going -b html docs build/site.

Every code cell is executed. A cell that raises, a warning or a link that leads nowhere ends the build. For a quick look
at the text alone add -D nb_execution_mode=off.
"""

import importlib.util
import os
import pathlib
import sys
import tomllib
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
# Cells run in processes of their own, which import the package of this clone.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))

import attn_jax  # noqa: E402

project = "attn_jax"
author = "the authors of attn_jax"
project_copyright = "Apache-2.0"
version = release = attn_jax.__version__
language = "en"

# Once pyproject.toml names the owner, each chapter has a link to Colab, which opens the notebooks of a site that is
# published on the branch gh-pages.
project_file = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
repository = project_file["project"]["urls"]["Repository"]
repository = "" if "/OWNER/" in repository else repository

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx_copybutton"]
extensions += ["source_pages", "book", "zoo", "api", "options", "matrix"]
exclude_patterns = ["_ext/**"]
templates_path = []

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
# Links to files of the repository: _ext/source_pages.py.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "repository": "{{path}}"}
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of a cell; a chapter is meant to take less than a minute
nb_merge_streams = True
suppress_warnings = ["myst-nb.lexer"]  # of cells that are not executed

nitpicky = True
# Annotations of signatures; names in the text are links to files and pages, which are checked.
nitpick_ignore_regex = [(r"py:.*", r".*")]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

html_theme = "sphinx_book_theme"
html_title = "attn_jax"
# Equations are typeset without a network, by the files of a package that as an extension would forbid `-j 2`.
mathjax = pathlib.Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static"
html_static_path = ["_static", str(mathjax)]
mathjax_path = "mathjax/tex-chtml.js"
html_css_files, html_js_files = ["site.css"], ["filter.js"]
html_context = {"default_mode": "auto"}  # without it the theme logs an error at the first visit
html_show_sourcelink = False  # the theme has a button for it
html_theme_options = {"show_toc_level": 2, "home_page_in_toc": True, "use_download_button": True}
html_theme_options["navbar_persistent"] = []  # the side bar has the search already


def setup(app):
    # Chapters, whose cells take most of the time, are neighbours; in this order the processes of `-j 2` share them.
    app.connect("env-before-read-docs", lambda app, env, names: names.sort(key=lambda name: zlib.crc32(name.encode())))
