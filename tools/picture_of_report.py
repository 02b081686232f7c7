"""The picture of the report in the README: the demo's page, light and dark, side by side.

    foldless demo
    python tools/picture_of_report.py foldless-demo/report.html docs/images/report.png

Needs Chromium with its driver, and selenium.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from selenium import webdriver

SIZE, GAP, SHOWN = (960, 1570), 20, 614


def shot(page: Path, scheme: str) -> Image.Image:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False},
        )
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
        browser.get(page.resolve().as_uri())
        return Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    finally:
        browser.quit()


def main(page: Path, picture: Path) -> None:
    both = [shot(page, scheme) for scheme in ("light", "dark")]
    whole = Image.new("RGB", (2 * SIZE[0] + GAP, SIZE[1]), "grey")
    whole.paste(both[0], (0, 0))
    whole.paste(both[1], (SIZE[0] + GAP, 0))
    share = SHOWN / SIZE[0]
    shown = whole.resize((round(share * whole.width), round(share * whole.height)), Image.Resampling.LANCZOS)
    shown.quantize(256, method=Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
