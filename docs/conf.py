"""Settings of the site, which `cca-lab site` builds with Sphinx.

Nothing is loaded from a network.
"""

from pathlib import Path

project = "cca_lab"
author = "The cca_lab authors"
copyright = "the cca_lab authors; MIT, texts CC BY 4.0"
root_doc = "index"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "cca_lab.views.mathml"]

# Notebooks are shown with the outputs that they have, formulas as MathML; articles on claims run.
nb_execution_mode = "force"
nb_execution_excludepatterns = ["*.ipynb"]
nb_execution_timeout = 300
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_ipywidgets_js = {}
html_math_renderer = "mathml"
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_update_mathjax = False
myst_heading_anchors = 4
myst_html_meta = {"description": "Long-context attention that you build, break and measure on a "
                  "laptop: from a Python loop to a GPU kernel, and into a trained GPT-2."}
# Checks and results have a text too; their own kind is for the walkthrough, which counts them.
suppress_warnings = ["mystnb.unknown_mime_type"]

default_role = "code"  # docstrings have Markdown's single backquotes
add_module_names = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Class attributes", "params_style")]
highlight_language = "text"  # of code without a language: commands, equations

html_theme = "sphinx_book_theme"
html_title = "cca_lab: long-context attention on a laptop"
html_favicon, html_static_path = "_static/icon.svg", ["_static"]
html_css_files, html_js_files = ["site.css"], ["copy.js"]
html_copy_source = True  # for the button that downloads a notebook
html_show_sourcelink = False
html_theme_options = {
    "use_download_button": True, "use_fullscreen_button": False, "show_toc_level": 2,
    "navbar_persistent": [],  # the search field stands in the sidebar
}


def setup(app):
    """Let docstrings be Markdown in part, and write the course's mistakes."""
    app.connect("autodoc-process-docstring", as_rest)
    app.connect(
        "builder-inited", lambda app: Path(app.srcdir, "docs", "teach", "mistakes.md").write_text(
            mistakes(), encoding="utf-8"))


def as_rest(app, what, name, item, options, lines):
    """Show two stars as they are, an indented formula as it is typed, and options as parameters."""
    shown, before = [], ""
    for line in lines:
        formula = line.startswith("    ") and not shown[-1].strip()
        if formula and before and before[0] not in " :.*":
            shown += ["::", ""]
        line = line.replace("**", r"\*\*").replace(":ivar ", ":param ")
        shown.append(line.replace(":vartype ", ":type "))
        before = line if line.strip() and not line.startswith("    ") else before
        before = "" if line.startswith("    ") else before
    lines[:] = shown


def mistakes():
    """Return the page of the mistakes that the course knows, from the tables of the exercises."""
    from cca_lab.course.registry import ASSIGNMENTS

    lines = ["# What each mistake costs", "", "Mistakes that the checks know by name. A test gives "
             "every one of them to the grader."]
    for assignment in ASSIGNMENTS.values():
        lines += ["", f"## Assignment {assignment.id}", "",
                  "| task | mistake | what fails | points |", "|---|---|---|---|"]
        for task in assignment.tasks:
            lines += [f"| {task.id} | {said.replace('|', chr(92) + '|')} | {prop.name} | "
                      f"{prop.points} |" for prop in task.properties for said in prop.wrong]
    return "\n".join(lines) + "\n"
