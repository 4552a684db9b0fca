"""Commands of workers: allowed by name, run without a shell, in a sandbox of the kernel."""
