"""Calculators of the site that run the labs' own files in the reader's browser.

`write(folder, find_pyodide())` puts what they need into a folder of the site and returns a page
for each. The modules that `SENT` names go to the browser as they are; the others build.
"""

from grader.site.calculators.calculator_pages import SENT, CalculatorPage, write
from grader.site.calculators.pyodide_files import HOW_TO_GET, find_pyodide

__all__ = ["HOW_TO_GET", "SENT", "CalculatorPage", "find_pyodide", "write"]
