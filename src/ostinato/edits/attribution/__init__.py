"""Attribution: the traces and notes that record which lines an agent wrote, and the blame that reads them.

`report` and `install` import this folder.
"""
