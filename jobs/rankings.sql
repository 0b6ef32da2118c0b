-- The order in which a pool is filled. Turns that could not be scored come last, in the fused order; ties go to the
-- earlier turn, or to the one that the fused lists place first.
SELECT
  tenant_id, store_id, request_id, turn_id, turn_ordinal, score,
  CAST(row_number() OVER (
    PARTITION BY tenant_id, store_id, request_id
    ORDER BY score DESC NULLS LAST, CASE WHEN score IS NULL OR $ties = 'fused' THEN pool_position END, turn_ordinal
  ) AS INT) AS rank
FROM (
  SELECT
    tenant_id, store_id, request_id, turn_id, turn_ordinal, pool_position,
    rank_score(named_struct(
      'pool_position', pool_position,
      'bm25_score', bm25_score,
      'bm25_rank', bm25_rank,
      'dense_score', dense_score,
      'dense_rank', dense_rank,
      'ce_prob', ce_prob,
      'context_cosine', context_cosine,
      'role', role,
      'position', position,
      'age_days', age_days,
      'length_tokens', length_tokens,
      'teacher_grade', teacher_grade
    )) AS score
  FROM features
)
