"""`auto` as a bandit: strategies are arms with an expected throughput; the others are explored now and then."""
