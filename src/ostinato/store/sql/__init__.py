"""The SQL database below the record: tables, connections, transactions and the form of each row.

Only the other parts of `store` come in, and rooms that write their own queries in one transaction (`deploy`).
"""
