"""Memory networks, which answer questions about stories."""
