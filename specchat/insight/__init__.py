"""Speed by recorded steps: projections, advice, the session's ledger, races and replays. No widgets."""
