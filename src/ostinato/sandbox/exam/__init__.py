"""Exams: the verdict on a candidate's changes, in three regimes.

`judged` keeps the tests out of the candidate's process, `guarded` runs a repository's suite in that process
under a watch, `command` runs any program and reads its report. `verifier` chooses; other rooms use it alone.
Exams are a part of the sandbox since backends hold the judged ones, and parts of two regimes run in guests.
"""
