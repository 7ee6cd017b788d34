"""Where Ray has its trainers."""
