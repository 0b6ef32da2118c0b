-- Every request gets a row: the fill of its ranking, and a status that says why it is not what it could be.
SELECT
  r.tenant_id, r.store_id, r.request_id,
  coalesce(r.asked_at, $as_of, w.watermark) AS reference_at,
  w.watermark,
  CASE
    WHEN w.store_id IS NULL THEN 'unknown_store'
    -- The encoder failed on the question, or on a turn of its store: recall did not see all that it should.
    WHEN q.content_hash IS NOT NULL AND q.vector IS NULL OR w.without_vector > 0 THEN 'degraded'
    ELSE s.slate['status']
  END AS status,
  s.slate['turn_ids'] AS turn_ids,
  s.slate['tokens'] AS tokens,
  $budget_tokens AS budget_tokens,
  s.slate['text'] AS text
FROM (
  -- row_number() makes the engine sort by request, so that only one ranking is held in memory.
  SELECT
    tenant_id, store_id, request_id,
    fill_slate(
      array_agg(named_struct(
        'turn_id', turn_id,
        'turn_ordinal', turn_ordinal,
        'session_ordinal', session_ordinal,
        'session_started_at', session_started_at,
        'role', role,
        'content', content,
        'content_hash', content_hash,
        'score', score,
        'rank', rn
      )) FILTER (WHERE rank IS NOT NULL),
      CAST($budget_tokens AS BIGINT),
      $slate
    ) AS slate
  FROM (
    SELECT
      r.tenant_id, r.store_id, r.request_id, k.score, k.rank,
      t.turn_id, t.turn_ordinal, t.session_ordinal, t.session_started_at, t.role, t.content, t.content_hash,
      row_number() OVER (PARTITION BY r.tenant_id, r.store_id, r.request_id ORDER BY k.rank, k.turn_ordinal) AS rn
    FROM requests AS r
    LEFT JOIN rankings AS k ON k.tenant_id = r.tenant_id AND k.store_id = r.store_id AND k.request_id = r.request_id
    LEFT JOIN (
      SELECT *, first_value(spoken_at) OVER (
        PARTITION BY tenant_id, store_id, session_id ORDER BY spoken_at NULLS LAST ROWS UNBOUNDED PRECEDING
      ) AS session_started_at
      FROM turns
    ) AS t ON t.tenant_id = k.tenant_id AND t.store_id = k.store_id AND t.turn_ordinal = k.turn_ordinal
  )
  GROUP BY tenant_id, store_id, request_id
) AS s
JOIN requests AS r ON r.tenant_id = s.tenant_id AND r.store_id = s.store_id AND r.request_id = s.request_id
LEFT JOIN embeddings AS q
  ON q.content_hash = r.question_hash AND q.purpose = 'query' AND q.encoder_hash = $encoder_hash
LEFT JOIN (
  SELECT t.tenant_id, t.store_id, max(t.spoken_at) AS watermark,
    count(*) FILTER (WHERE e.content_hash IS NOT NULL AND e.vector IS NULL) AS without_vector
  FROM turns AS t
  LEFT JOIN embeddings AS e
    ON e.content_hash = t.content_hash AND e.purpose = 'passage' AND e.encoder_hash = $encoder_hash
  GROUP BY t.tenant_id, t.store_id
) AS w ON w.tenant_id = r.tenant_id AND w.store_id = r.store_id
