"""How a gradebook of an older form becomes one of this: Alembic's steps, run by `database`."""
