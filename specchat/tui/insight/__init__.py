"""What recorded steps say about speed: projections, advice, the session's ledger, races and replays. No widgets."""
