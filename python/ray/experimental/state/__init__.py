"""ray.util.state, under its old name."""
