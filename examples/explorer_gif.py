"""Draw docs/explorer.gif: the explorer while the query moves through a text. Needs `chromium`.

Run `python examples/explorer_gif.py` in the clone.
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from cca_lab.cli.lab import MAPS
from cca_lab.views.explorer import explore

WIDTH, HEIGHT, COLOURS = 980, 525, 40
MILLISECONDS, LAST_MILLISECONDS = 220, 2500  # a frame is shown

with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
    page = Path(folder, "explorer.html")
    explorer = explore("gpt2-mini-cca", MAPS, attention="cca", group=8, window=8, layer=1)
    explorer.save(page)
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"),
                                     args=["--no-sandbox"])
    window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    window.goto(page.as_uri())
    frames = []
    for query in range(8, len(explorer.source.words)):
        window.locator(".ex-player input").fill(str(query))
        window.wait_for_timeout(400)  # colours change slowly
        frames.append(Image.open(io.BytesIO(window.screenshot())).convert("RGB"))
    browser.close()
palette = frames[-1].quantize(COLOURS)
frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
times = [MILLISECONDS] * (len(frames) - 1) + [LAST_MILLISECONDS]
frames[0].save("docs/explorer.gif", save_all=True, append_images=frames[1:], duration=times, loop=0,
               optimize=True)
