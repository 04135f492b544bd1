"""What is known of each unit, and where it is kept."""
