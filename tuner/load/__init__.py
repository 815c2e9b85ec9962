"""Load: a plan for one rung, played against a server; one RequestTiming a request."""
