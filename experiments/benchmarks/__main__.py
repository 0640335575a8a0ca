"""Runs all benchmarks of a CPU that docs/performance.md shows, one after the other, and renders the page.

python -m experiments.benchmarks [NAME ...]

Those of a GPU: python -m experiments.gpu_queue.
"""

import subprocess
import sys

from experiments.benchmarks import page

if __name__ == "__main__":
    for name in sys.argv[1:] or [name for name in page.SECTIONS if not name.startswith("gpu_")]:
        print(f"== {name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", f"experiments.benchmarks.{name}"], check=True)
    page.PAGE.write_text(page.render(), encoding="utf-8")
