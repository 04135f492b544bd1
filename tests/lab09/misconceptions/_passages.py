"""Passages of lab 09's reference, and other texts, that the wrong answers of several tasks name."""

COMMUNICATION = 'if "nccl" in name.lower():'
