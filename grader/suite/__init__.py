"""A lab's hidden suite: its tests, its misconceptions, and how one test is run and diagnosed.

Knows nothing of pytest's machinery. Importing this package imports neither torch, NumPy nor
hypothesis.

test           a function `test_*` with `@task(...)`; its docstring names its oracle
case           one run of a test, with one set of parameters
gate           a test without which its task earns nothing
step           a test with a share of its task's points, once every gate has passed
extra          a test that needs a GPU, real data or an optional library: shown, never scored
student        what a test calls: the learner's code, on the other side of the wall
backend        where that code runs: this process, a process of its own, or a sandbox
handle         stands for an object of the learner's that stays on the other side
probe          a function of `probes.py` that runs beside the learner's code
code spec      what a backend is opened with: the learner's files, the given files, the probes
evidence       what a verdict rests on: values that came back are computed; what a meter or a probe
               counted beside the learner's code is witnessed
outcome        how one case went: its status, what was observed, and where
needs          what a task cannot be verified without, such as a compiler
reference      the kit's own solution
variant        another right solution, which the suite must pass
misconception  a wrong solution as code, with the sentence that a learner who gave it should read
fake           a wrong solution that knows nothing of the task, such as a constant
splice         to put a misconception in its place in the reference
replay         to run a case again on the reference with a misconception in it
agreement      a failing case that a misconception's replay fails alike
extra failure  a case that the learner's code passes and a misconception fails: forgotten if it only
               raises or does not refuse, else hard
diagnosis      to name the misconceptions that explain the failures of a whole task
seed           what a case's random inputs come from: public, or keyed by the course
"""

from grader.suite.api import property_settings, task
from grader.suite.splice import block, lines, misconception

__all__ = ["block", "lines", "misconception", "property_settings", "task"]
