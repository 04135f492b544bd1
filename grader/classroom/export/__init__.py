"""Marks in the formats of other systems. Each is a pure function of a mark sheet or of a result;
`export_command` alone reads and writes files."""
