"""The short article as a PDF: Markdown to HTML as on the site, and HTML to PDF by a Chromium without a window."""

import subprocess
import tempfile
from pathlib import Path

from cca_lab.files import replacing
from cca_lab.walkthrough.pages import markdown_html

STYLE = """
@page { size: A4; margin: 22mm 20mm; }
body { font: 10.5pt/1.42 "DejaVu Serif", Georgia, serif; color: #111; max-width: 175mm; margin: auto; }
h1 { font-size: 18pt; line-height: 1.2; } h2 { font-size: 13pt; margin-top: 1.4em; } h3 { font-size: 11pt; }
h1, h2, h3 { break-after: avoid; } table { border-collapse: collapse; font-size: 9pt; width: 100%; }
th, td { border-bottom: 0.4pt solid #999; padding: 2pt 5pt; text-align: left; vertical-align: top; }
tr { break-inside: avoid; } code { font-size: 9pt; } img { max-width: 100%; } a { color: inherit; }
"""
SECONDS = 120


def page(source: Path) -> str:
    """Return an article's Markdown as one HTML page that loads nothing.

    Raises:
        ValueError: if the file is missing or has no title.
    """
    if not source.is_file():
        raise ValueError(f"article: {source} is not a file; give a Markdown file, such as docs/article.md")
    text = source.read_text(encoding="utf-8")
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), "")
    if not title:
        raise ValueError(f"article: {source} has no title; begin it with a line such as '# Title'")
    return f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>' \
           f"<style>{STYLE}</style></head><body>{markdown_html(text, source.parent)}</body></html>\n"


def write_pdf(source: Path, out: Path, browser: str | None) -> Path:
    """Write an article as a PDF, in one step.

    Args:
        source: the Markdown file; its pictures are found beside it.
        out: the PDF to write.
        browser: path of a Chromium, or None.

    Returns:
        The path of the PDF.

    Raises:
        ValueError: if there is no Chromium, or it fails.
    """
    html = page(source)
    if browser is None:
        raise ValueError("article: no Chromium on this machine prints the PDF; install one, or print docs/article.md "
                         "from the site (`cca-lab site`) in any browser")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, replacing(out) as temporary:
        path, printed = Path(folder, "article.html"), Path(folder, "article.pdf")
        path.write_text(html, encoding="utf-8")
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
             "--no-pdf-header-footer", f"--print-to-pdf={printed}", path.as_uri()],
            capture_output=True, text=True, check=False, timeout=SECONDS)
        if done.returncode or not printed.is_file():
            raise ValueError(f"article: {browser} printed nothing: {done.stderr.strip()[-300:]}")
        temporary.write_bytes(printed.read_bytes())
    return out
