"""A course in one folder: what the instructor decides (`course.toml`), who takes part (a roster),
and what a late submission costs."""
