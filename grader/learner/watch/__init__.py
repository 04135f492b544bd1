"""`infralens watch`: a warm process beside the editor answers each save.

Three processes. The terminal's own (`command`, `plain`, `screen`) imports neither a suite nor
torch; it sees the files (`files`) and shows what it hears (`watched_lab`). The warm one (`warm`,
spoken to through `link`) has the lab's suite and its libraries loaded, and runs no learner's code.
Each round (`one_round`, in the order of `save_order`) is a fork of it, which streams the outcomes
of cases and ends.
"""
