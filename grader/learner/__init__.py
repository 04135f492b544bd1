"""What a learner uses besides pytest: the overview, the next task, hints, a fresh start."""
