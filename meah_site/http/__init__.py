"""MCP over Streamable HTTP: `/mcp` beside the console, or alone as `runmcp --transport http`."""
