"""Training engines: plug-ins that turn rollouts into updates, each in a folder of its own."""
