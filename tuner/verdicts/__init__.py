"""What the records say: effects with intervals, winners, the ledger of hypotheses; pure."""
