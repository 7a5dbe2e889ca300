"""The turns of a rollout that lies in one row, as TRL keeps it: what was sampled, what tools returned.

A sampled message ends in a stop token, or where the row ends. What follows it, up to the header of the next
message of the model, was returned by tools.
"""

from collections.abc import Collection, Sequence

RESULT_END = "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
"""The last text between two turns, which the tokenizers of our own checkpoints have as one token."""


def sampled_spans(ids: Sequence[int], stops: Collection[int], header: int) -> list[tuple[int, int]]:
    """Return where each sampled message of a completion begins and ends, its stop token included.

    `header` is the id of `RESULT_END`.
    """
    spans, start = [], 0
    while start < len(ids):
        end = next((i + 1 for i in range(start, len(ids)) if ids[i] in stops), len(ids))
        spans.append((start, end))
        start = next((i + 1 for i in range(end, len(ids)) if ids[i] == header), len(ids))
    return spans
