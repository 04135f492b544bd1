"""What a lab is: its manifest, its skeletons, the data and the machine that it needs."""
