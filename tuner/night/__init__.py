"""One study over a night: what to launch next, one launch in a straight line, the loop."""
