-- An input's columns as requests. asked_at NULL: a standing request, answered as of its store's latest turn.
SELECT tenant_id, store_id, request_id, question, asked_at, split
FROM input.requests
