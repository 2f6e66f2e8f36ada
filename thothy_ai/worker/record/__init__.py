"""What a worker reads from Postgres and writes to it: claims, outcomes, usage."""
