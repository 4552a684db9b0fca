"""The live console: one page of the admin, kept current over a websocket that only ever tells."""
