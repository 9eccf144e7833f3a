"""The models a user has or could have: found on the disk, fetched, declared as pairs, removed. No windows, no torch."""
