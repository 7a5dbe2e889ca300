"""The look of the full screen, where its parts stand and which of them scroll, and its first words."""

GREETING = (
    "What shall I do? / lists commands, @ names a file, Ctrl-J begins a line, Ctrl-O opens what is folded; "
    "Ctrl-C stops the agent, and leaves when it rests."
)
CSS = """
Screen { background: $background; }
#story { height: 1fr; padding: 0 1; }
#plan, #asking, #queue, #found, #sessions { height: auto; padding: 0 1; display: none; }
#plan { max-height: 30%; border-top: solid $primary; }
#asking { max-height: 50%; border: round $warning; border-title-color: $warning; }
#question { height: auto; }
#queue { max-height: 6; color: $text-muted; }
#found { max-height: 10; }
#sessions { max-height: 50%; border: round $primary; }
#line { border-top: solid $primary 50%; border-title-color: $text-muted; border-title-align: right; }
#status { height: 1; background: $panel; padding: 0 1; }
"""
