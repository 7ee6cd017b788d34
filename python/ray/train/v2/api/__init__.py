"""The place where Ray has its trainers."""
