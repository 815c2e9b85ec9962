"""From a log, an exit code and a phase to the first cause, what to blame and what to do next."""
