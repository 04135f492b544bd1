"""A grading run: its coordinator, the jobs that it gives units to, and how one unit is graded."""
