"""What formats of sessions share: records, messages, rewards, states, and the import itself."""
