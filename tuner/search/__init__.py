"""What to try next, by Optuna, taught with what the records say."""
