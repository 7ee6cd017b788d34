"""Old homes of names."""
