"""The one place that speaks HTTP."""
