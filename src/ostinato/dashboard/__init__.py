"""The store, seen in a browser: pages that read the record, each with an address and a `.json` of the same.

`text` prepares what people and models wrote, `charts` draws SVG, `reading` asks the store, and the files
here serve: `app` the routes, `access` the callers, `server` the process. `loop` comes in, with what the pages
show of trials and monitors.
"""
