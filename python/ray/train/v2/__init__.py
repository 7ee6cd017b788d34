"""Ray's second version of ray.train, which is the only one here."""
