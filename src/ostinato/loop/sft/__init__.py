"""`ostinato sft`: fine-tuning on demonstrations of one's own. The command line comes in."""
