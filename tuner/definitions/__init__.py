"""What a person writes, from YAML to checked values; every fault of every file at once."""
