-- Another layout: a session a row, its messages a nested list, as many stores keep chats. Only this SELECT differs.
SELECT
  user_id AS store_id,
  conversation_id AS session_id,
  concat(conversation_id, ':', n) AS turn_id,
  CAST(n - 1 AS INT) AS position,
  coalesce(m['sent_at'], started_at) AS spoken_at,
  m['role'] AS role,
  m['content'] AS content
FROM (
  SELECT user_id, conversation_id, started_at, unnest(messages) AS m, unnest(range(1, CAST(array_length(messages) AS BIGINT) + 1)) AS n
  FROM input.sessions
)
