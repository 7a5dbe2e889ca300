"""The agent inside an editor, over the Agent Client Protocol. It needs the extra `code`."""
