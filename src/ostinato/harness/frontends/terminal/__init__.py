"""The frontend on a full screen. `code` comes in through `app`, which alone knows the other files.

`story` shows what happened, `line` takes what a person types, with `completion` and `history`; `markdown`,
`diffs` and `status` say how things look, `background` whether the terminal is dark.
"""
