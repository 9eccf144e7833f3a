"""`auto` as a bandit: strategies are arms, expected throughput is estimated, arms that are not taken are explored."""
