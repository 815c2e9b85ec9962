"""What people ask for, as values: results, plans, exports."""
