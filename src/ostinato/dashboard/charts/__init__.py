"""Charts and graphs as SVG, drawn by the server: nothing runs in the browser.

It imports nothing else of this room. `html` comes in.
"""
