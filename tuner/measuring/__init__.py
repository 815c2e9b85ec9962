"""From request timings to numbers, and whether the output is still right; pure."""
