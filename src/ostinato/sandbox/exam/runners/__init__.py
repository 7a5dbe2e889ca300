"""The runners of guarded suites: what a guarded exam has to know of each language, one file each.

`guarded_exam` and `suite` come in through `base.SuiteRunner` and `every.RUNNERS`.
"""
