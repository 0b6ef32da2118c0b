, started AS (
  -- The least of a sorted column, not min(): a window without an order holds all rows of the input at once.
  SELECT *, first_value(spoken_at) OVER (
      PARTITION BY tenant_id, store_id, session_id ORDER BY spoken_at NULLS LAST ROWS UNBOUNDED PRECEDING
    ) AS session_at
  FROM checked WHERE problem IS NULL
), placed AS (
  SELECT *,
    CAST(row_number() OVER (
      PARTITION BY tenant_id, store_id
      ORDER BY given_ordinal NULLS LAST, session_at NULLS LAST, given_session NULLS LAST,
        length(session_id), session_id, given_position NULLS LAST, spoken_at NULLS LAST, length(turn_id), turn_id
    ) - 1 AS INT) AS turn_ordinal
  FROM started
), sessions AS (
  SELECT *, first_value(turn_ordinal) OVER (
      PARTITION BY tenant_id, store_id, session_id ORDER BY turn_ordinal ROWS UNBOUNDED PRECEDING
    ) AS session_first
  FROM placed
), numbered AS (
  SELECT *,
    CAST(dense_rank() OVER (PARTITION BY tenant_id, store_id ORDER BY session_first) - 1 AS INT) AS session_ordinal,
    CAST(coalesce(given_position, row_number() OVER (
      PARTITION BY tenant_id, store_id, session_id ORDER BY turn_ordinal
    ) - 1) AS INT) AS position
  FROM sessions
), hashed AS (
  SELECT
    tenant_id, store_id, session_id, turn_id, turn_ordinal, session_ordinal, position, spoken_at, added_at, role,
    speaker, content, language AS given_language, coalesce(language, detect_language(content)) AS language,
    CASE WHEN regexp_like(content, '\S') THEN sha256(content) END AS content_hash,
    count_tokens(content) AS tokens
  FROM numbered
)
-- Tokens, language and hash follow from the content: a fingerprint without them can be had without counting.
SELECT *,
  fingerprint(
    turn_id, session_id, turn_ordinal, session_ordinal, position, spoken_at, added_at, role, speaker, content,
    given_language
  ) AS row_fingerprint,
  shard_of(tenant_id, store_id, $shards) AS shard
FROM hashed
