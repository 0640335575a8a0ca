"""Reports: one self-contained HTML file for a run or for a sweep. Data in run.py and sweep.py, the file in page.py."""
