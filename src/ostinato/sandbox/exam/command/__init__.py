"""Command exams: any program runs the hidden tests and writes a report, which is read from outside."""
