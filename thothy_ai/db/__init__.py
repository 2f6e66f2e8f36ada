"""The record: schema, connections and named statements. Postgres decides; everything else is a hint."""
