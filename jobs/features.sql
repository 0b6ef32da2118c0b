-- What a ranking may look at, a row a pooled turn. Six features of relevance, four of the turn itself.
SELECT
  p.tenant_id, p.store_id, p.request_id, p.turn_id, p.turn_ordinal,
  p.pool_position,
  list_score(p.lists, 'bm25') AS bm25_score,
  list_rank(p.lists, 'bm25') AS bm25_rank,
  list_score(p.lists, 'dense') AS dense_score,
  list_rank(p.lists, 'dense') AS dense_rank,
  sigmoid(s.logit) AS ce_prob,
  context_cosine(
    q.vector,
    CASE WHEN c.previous_at IS NULL OR p.reference_at IS NULL OR c.previous_at <= p.reference_at THEN c.previous END,
    c.vector,
    CASE WHEN c.next_at IS NULL OR p.reference_at IS NULL OR c.next_at <= p.reference_at THEN c.next END
  ) AS context_cosine,
  role_code(c.role) AS role,
  c.position,
  age_days(c.spoken_at, p.reference_at) AS age_days,
  c.tokens AS length_tokens,
  j.grade AS teacher_grade
FROM pools AS p
JOIN requests AS r ON r.tenant_id = p.tenant_id AND r.store_id = p.store_id AND r.request_id = p.request_id
JOIN (
  -- Each turn with the vectors of its neighbours in the session.
  SELECT
    t.*, e.vector,
    lag(e.vector) OVER session AS previous, lag(t.spoken_at) OVER session AS previous_at,
    lead(e.vector) OVER session AS next, lead(t.spoken_at) OVER session AS next_at
  FROM turns AS t
  LEFT JOIN embeddings AS e
    ON e.content_hash = t.content_hash AND e.purpose = 'passage' AND e.encoder_hash = $encoder_hash
  WINDOW session AS (PARTITION BY t.tenant_id, t.store_id, t.session_id ORDER BY t.turn_ordinal)
) AS c ON c.tenant_id = p.tenant_id AND c.store_id = p.store_id AND c.turn_ordinal = p.turn_ordinal
LEFT JOIN embeddings AS q
  ON q.content_hash = r.question_hash AND q.purpose = 'query' AND q.encoder_hash = $encoder_hash
LEFT JOIN scores AS s
  ON s.question_hash = r.question_hash AND s.content_hash = c.content_hash AND s.scorer_hash = $scorer_hash
LEFT JOIN judgements AS j
  ON j.question_hash = r.question_hash AND j.content_hash = c.content_hash AND j.teacher_hash = $teacher_hash
