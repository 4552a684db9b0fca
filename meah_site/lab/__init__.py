"""A throw-away MEAH with the CRM behind it: what `demo` and `evals` run on. Real processes, no model, no network."""
