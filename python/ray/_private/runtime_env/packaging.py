"""NeMo RL reloads this module, to forget what it has uploaded: golaunch uploads nothing."""
