"""The transaction coordinator as clients see it: who coordinates which id, and what becomes of their requests."""
