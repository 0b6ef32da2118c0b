-- The cross-encoder's logit for each (question, turn) pair of the pools that has none yet; by content, as embeddings. A pair
-- on which the cross-encoder failed is not among `scores`, and is tried again.
SELECT question_hash, content_hash, scorer_hash, s['logit'] AS logit, s['truncated'] AS truncated
FROM (
  SELECT question_hash, content_hash, scorer_hash, cross_score(question, content) AS s
  FROM (
    SELECT r.question_hash, t.content_hash, $scorer_hash AS scorer_hash,
      first_value(r.question) AS question, first_value(t.content) AS content
    FROM pools AS p
    JOIN requests AS r ON r.tenant_id = p.tenant_id AND r.store_id = p.store_id AND r.request_id = p.request_id
    JOIN turns AS t ON t.tenant_id = p.tenant_id AND t.store_id = p.store_id AND t.turn_ordinal = p.turn_ordinal
    GROUP BY r.question_hash, t.content_hash
  ) AS pairs
  LEFT ANTI JOIN scores
    ON pairs.question_hash = scores.question_hash
    AND pairs.content_hash = scores.content_hash
    AND pairs.scorer_hash = scores.scorer_hash
)
