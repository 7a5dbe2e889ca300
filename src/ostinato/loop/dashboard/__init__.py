"""The dashboard's way into the loop: trials judged again, monitors read again, and people's words logged.

`link` is what the pages ask; `commands` is the command line, which comes in from `cli`.
"""
