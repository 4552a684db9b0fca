"""Commands of workers: words, filter, sandbox, ends."""
