"""The questions that the pages ask the store, and their answers as JSON values.

Each answer is what the page shows and what its `.json` holds. `app` and `commands` come in.
"""
